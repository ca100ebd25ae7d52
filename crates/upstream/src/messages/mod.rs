//! Messages between this server and an application, in either direction: bytes in, bytes out.
//!
//! | module | what it holds |
//! |---|---|
//! | [`target`] | the path that an upstream is asked for: the one that was judged |
//! | [`request`] | the head of a request to an upstream |
//! | [`response`] | the head of an upstream's answer, rewritten for the client |
//! | [`fastcgi`] | requests and answers of applications that speak FastCGI |
//! | [`client_url`] | the beginning of URLs as clients see them: host, port and the path that is stripped |
//! | [`sent_fields`] | which fields about the client a trusted proxy has sent, for the next stage |
//! | [`destination`] | addresses of resources in fields of WebDAV, rewritten for the application |
//! | `cookies` | the cookies in one field, perhaps without one that is hidden from applications |
//! | `names` | names of fields that have a meaning between this server and an upstream |
//! | `text` | numbers and addresses as text |

pub mod client_url;
pub mod cookies;
pub mod destination;
pub mod fastcgi;
pub(crate) mod names;
pub mod request;
pub mod response;
pub mod sent_fields;
pub mod target;
pub(crate) mod text;
