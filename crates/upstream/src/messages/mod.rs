//! What is said between here and an application, in either direction: bytes in, bytes out.
//!
//! | module | what it holds |
//! |---|---|
//! | [`target`] | the path that an upstream is asked for: the one that was judged |
//! | [`request`] | the head of a request, as an upstream is told it |
//! | [`response`] | the head of an answer, as the client is told it |
//! | [`fastcgi`] | the same for applications that speak FastCGI |
//! | [`client_url`] | how the client's address of a resource begins: host, port and the path that is stripped |
//! | [`sent_fields`] | which fields about the client a trusted proxy has sent, as stages tell one another |
//! | [`destination`] | addresses of resources in fields of WebDAV, as the application has them |
//! | `cookies` | cookies in one field, perhaps without one that is not an application's business |
//! | `names` | names of fields that mean something between here and an upstream |
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
