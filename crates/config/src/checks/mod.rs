//! What must hold between settings, and what is right and yet hardly meant, as far as the text tells. Lints of the
//! server ask the machine.
//!
//! | module | what it looks at |
//! |---|---|
//! | `check` | all that must hold: it calls the others, and has what is about several kinds of section |
//! | `remarks` | all that is remarked, likewise |
//! | `policy` | classes and rules, and what of the two does not fit |
//! | `acme` | sites that want certificates by ACME, and rules that keep the authority out |
//! | `applications` | applications that cannot work as they are set |
//! | `caching`, `literal` | fields that browsers misunderstand, and those that have what is no variable |
//! | `firewalled`, `gated` | what keeps clients out of the firewall, and rules out of the kernel |
//! | `isolated` | what the engine isolated cannot do yet, and what means nothing with it |
//! | `pages` | error pages that no client would see, and where paths of a site lie |
//! | `redirects` | redirects that lead back to themselves |
//! | `secured` | where clients are led for TLS, and TLS without effect |
//! | `spared` | who is never ignored or banned, and rules that would ban them |
//! | `unused` | settings that another one leaves without effect |

mod acme;
pub mod applications;
pub(crate) mod caching;
pub(crate) mod check;
pub(crate) mod firewalled;
pub(crate) mod gated;
mod isolated;
pub(crate) mod literal;
pub mod pages;
pub(crate) mod policy;
pub(crate) mod redirects;
pub mod remarks;
pub(crate) mod secured;
pub mod spared;
pub(crate) mod unused;
