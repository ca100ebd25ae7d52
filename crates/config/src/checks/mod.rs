//! What must hold between settings, and what is hardly meant.

mod acme;
mod isolated;
