//! FastCGI, as programs such as php-fpm speak it: one request at a time on each connection.
//!
//! | file | subject |
//! |---|---|
//! | `record.rs` | what is sent and received: records, names with values |
//! | `params.rs` | what a script is told of a request |
//! | `answer.rs` | what comes back: a head as CGI has it, a body, words for the log |
//! | `script.rs` | which part of a path is the script |

mod answer;
mod params;
mod record;
mod script;

pub use answer::{Error, Piece, Read, Reader};
pub use params::{Params, Settings, write};
pub use record::{MOST_CONTENT_BYTES, abort, end_of_stdin, stdin};
pub use script::{Script, script_of};
