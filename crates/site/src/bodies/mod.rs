//! Bodies of answers: where their bytes are, how they come there, and how they are coded.
//!
//! | module | what it holds |
//! |---|---|
//! | `variant` | one form of a cached answer: as it is, or in a coding |
//! | `read` | reading a file whole into memory |
//! | `disk` | a file that is sent from the disk, and which parts can be sent without waiting |
//! | `piped` | bodies that are read for one answer, and wait in the kernel |
//! | `memory_budget`, `spare` | how much memory bodies may take, and memory that is used again |
//! | `forms` | which precompressed forms of files may lie in a watched directory |
//! | `compress` | bodies in codings that no file has |
//! | `recode` | the same for answers of applications, as they pass by |

pub(crate) mod compress;
pub(crate) mod disk;
pub(crate) mod forms;
pub(crate) mod memory_budget;
pub(crate) mod piped;
pub(crate) mod read;
pub(crate) mod recode;
pub(crate) mod spare;
pub(crate) mod variant;
