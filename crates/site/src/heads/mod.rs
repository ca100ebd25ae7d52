//! What heads of answers are made of.
//!
//! | module | what it holds |
//! |---|---|
//! | `head_lines` | lines that every head has: the status, who answers, how long the body is |
//! | `fields` | the fields of an answer while they are put together, and the rules that change them |
//! | `media_types` | which media type a file has, by the ending of its name |
//! | `entity_tag` | what tells one content of a file from another |
//! | `pages` | small pages for answers without content: errors and redirects |

pub(crate) mod entity_tag;
pub(crate) mod fields;
pub(crate) mod head_lines;
pub(crate) mod media_types;
pub(crate) mod pages;
