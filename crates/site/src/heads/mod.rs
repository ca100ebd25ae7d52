//! Parts of the heads of answers.
//!
//! | module | what it holds |
//! |---|---|
//! | `head_lines` | lines that every head has: the status, the server's name, the length of the body |
//! | `fields` | the fields of an answer while they are put together, and the rules that change them |
//! | `media_types` | media types of files, by the endings of their names |
//! | `entity_tag` | entity tags of files and of bodies in codings |
//! | `pages` | small pages for answers without content: errors and redirects |

pub(crate) mod entity_tag;
pub(crate) mod fields;
pub(crate) mod head_lines;
pub(crate) mod media_types;
pub(crate) mod pages;
