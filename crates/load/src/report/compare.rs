//! Compare.
