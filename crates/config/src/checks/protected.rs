//! Servers besides this one that the kernel protects: none twice, and none that is this one.

use crate::Listen;
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::{ConfigDraft, numbered};
use crate::sections::protect::MOST_PROTECTED;
use std::fmt;

/// What is wrong with one of them.
#[derive(Debug)]
enum ProtectFault {
    TooMany {
        found: usize,
    },
    Twice,
    /// This server listens there.
    Own {
        port: u16,
    },
}

impl Finding for ProtectFault {}

impl fmt::Display for ProtectFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtectFault::TooMany { found } => {
                write!(f, "there are {found} of them, and at most {MOST_PROTECTED} can be")
            }
            ProtectFault::Twice => f.write_str("another [[protect]] has the same port and address"),
            ProtectFault::Own { port } => {
                write!(f, "this server itself listens at port {port}, where its rules hold anyway")
            }
        }
    }
}

impl ConfigDraft {
    pub(crate) fn check_protected(&self, wrong: &mut Vec<(At, Wrong)>) {
        let listeners = self.all_listeners();
        let own = listeners.iter().flat_map(|(_, listener)| listener.listen.iter());
        let port = |listen: &Listen| match listen {
            Listen::At(address) => Some(address.port()),
            Listen::All(port) => Some(*port),
            Listen::Unix(_) => None,
        };
        let own: Vec<u16> = own.filter_map(|one| port(&one.listen)).collect();
        for (index, (at, other)) in numbered("protect", &self.protects).enumerate() {
            let is_same = |known: &&crate::ProtectConfig| {
                (known.port(), known.address) == (other.port(), other.address)
            };
            let fault = if index == MOST_PROTECTED {
                ProtectFault::TooMany { found: self.protects.len() }
            } else if self.protects[..index].iter().any(|known| is_same(&known)) {
                ProtectFault::Twice
            } else if other.address.is_none() && own.contains(&other.port()) {
                ProtectFault::Own { port: other.port() }
            } else {
                continue;
            };
            wrong.push((at.child("port"), Wrong::said(fault)));
        }
    }
}
