//! FastCGI, as programs such as php-fpm speak it: one request at a time on each connection.
//!
//! | file | subject |
//! |---|---|
//! | `record.rs` | what is sent and received: records, names with values |
//! | `params.rs` | what a script is told of a request |
//! | `status.rs` | what php-fpm says of its workers |
//! | `answer.rs` | what comes back: a head as CGI has it, a body, words for the log |

mod answer;
mod params;
mod record;
mod status;

pub use answer::{FastCgiError, FastCgiPiece, FastCgiReader, RecordsRead};
pub use params::{Params, ScriptPath, ScriptSettings, length, write};
pub use record::{MOST_CONTENT_BYTES, abort, end_of_stdin, stdin};
pub use status::{PoolStatus, question};
