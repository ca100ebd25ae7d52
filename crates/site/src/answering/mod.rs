//! From a request to what is written: one loop's part.
//!
//! | module | what it holds |
//! |---|---|
//! | `site` | finds the entry for a request and answers with it |
//! | `site_request` | what goes with a request through the steps of a site |
//! | `https` | by which scheme clients have come: who is sent to https, and who is told to stay there |
//! | `answer` | what an entry answers: variant, conditions, ranges |
//! | `fixed` | answers that are the same for whoever asks, for those that keep them elsewhere |
//! | `body` | the part of an answer that is sent piece by piece |
//! | `refuse` | answers that are not what was asked for: errors, and what a site says of itself |
//! | `application` | requests that applications answer, and the rules that come before them |
//! | `application_answer` | what becomes of their answers: fields, coding, errors |

pub(crate) mod answer;
pub(crate) mod application;
pub(crate) mod application_answer;
pub(crate) mod body;
pub(crate) mod fixed;
pub(crate) mod https;
pub(crate) mod refuse;
pub(crate) mod site;
pub(crate) mod site_request;
