//! FastCGI, as programs such as php-fpm speak it: one request at a time on each connection.
//!
//! | file | subject |
//! |---|---|
//! | `record.rs` | the records that are sent and received, names with values |
//! | `params.rs` | the parameters of a script for a request |
//! | `status.rs` | the status page of php-fpm |
//! | `answer.rs` | the answer: a head as CGI has it, a body, messages for the log |

mod answer;
mod params;
mod record;
mod status;

pub use answer::{FastCgiError, FastCgiPiece, FastCgiReader, RecordsRead};
pub use params::{Params, ScriptPath, ScriptSettings, length, write};
pub use record::{MOST_CONTENT_BYTES, abort, end_of_stdin, stdin};
pub use status::{PoolStatus, question};
