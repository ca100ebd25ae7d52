//! One loop's part: from a request to the bytes that are written.
//!
//! | module | what it holds |
//! |---|---|
//! | `site` | finds the entry for a request and answers with it |
//! | `site_request` | the request as the steps of a site pass it on |
//! | `https` | the scheme of a request: the redirect to https, and Strict-Transport-Security |
//! | `answer` | the answer of an entry: variant, conditions, ranges |
//! | `fixed` | answers that are the same for every client, for keepers elsewhere |
//! | `body` | the part of an answer that is sent piece by piece |
//! | `refuse` | answers that are not what was asked for: errors, and what a site says of itself |
//! | `application` | requests that applications answer, and the rules that come before them |
//! | `application_answer` | applications' answers on their way: fields, coding, errors |

pub(crate) mod answer;
pub(crate) mod application;
pub(crate) mod application_answer;
pub(crate) mod body;
pub(crate) mod fixed;
pub(crate) mod https;
pub(crate) mod refuse;
pub(crate) mod site;
pub(crate) mod site_request;
