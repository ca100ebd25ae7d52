//! Every table and figure of the papers, and the statements that they make in text only.
//!
//! A figure that no file has is still listed, as one that is not measured.

/// A table, figure or statement of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SheetRow {
    /// The figure's name, such as `voigt-f12`.
    pub id: &'static str,
    /// The figure's subject.
    pub about: &'static str,
    /// The reason why it cannot be measured today, where a part is not built; empty if nothing is
    /// missing.
    pub not_built: &'static str,
    /// Whether the paper says too little to judge a part of it.
    pub may_be_beyond: bool,
}

const fn row(id: &'static str, about: &'static str) -> SheetRow {
    SheetRow { id, about, not_built: "", may_be_beyond: false }
}

/// All of them, in the order of the papers.
pub const SHEET: &[SheetRow] = &[
    SheetRow { may_be_beyond: true, ..row("keta-t1", "SPECweb99 at 300 connections") },
    SheetRow { may_be_beyond: true, ..row("keta-t2", "SPECweb99 at 600 connections") },
    SheetRow { may_be_beyond: true, ..row("keta-t3", "SPECweb99 at 1,000 connections") },
    SheetRow { may_be_beyond: true, ..row("keta-t4", "with and without the controller") },
    row("keta-f", "work per phase is a funnel"),
    row("keta-shift", "the controller under a load that shifts"),
    row("emu-f4", "1,000 fibers beside other fibers"),
    row("emu-f5", "1,000 fibers beside 1,000 threads"),
    row("emu-f7", "throughput at 5 connections"),
    row("emu-f8", "throughput with a local client"),
    row("emu-f9", "CPU over a saturated line"),
    row("emu-f10", "throughput over that line"),
    row("emu-816", "a file of 816,378 bytes"),
    row("emu-prio", "fibers with faster clients first"),
    row("duke-f1", "requests/s over load"),
    row("duke-f2", "latency over file size"),
    row("duke-f3", "requests/s over file size"),
    row("duke-f4", "requests/s over load, by size"),
    row("duke-f5", "latency over load, by size"),
    row("duke-f6", "threads against a pool"),
    row("duke-f7", "profile of one request"),
    row("duke-f8", "threads against Apache"),
    row("duke-7a", "far beyond saturation"),
    row("duke-7b", "HTTP/1.0 against 1.1 over distance"),
    row("duke-7d", "clients that stay silent"),
    row("voigt-tables", "policies of tables 1 and 2"),
    row("voigt-f5", "SYN policing for a preferred client"),
    row("voigt-f6", "burst size"),
    row("voigt-f7", "a prioritised queue: throughput"),
    row("voigt-f8", "a prioritised queue: response time"),
    row("voigt-4.3", "a fixed top class, a rising lower rate"),
    row("voigt-t3", "policing the top class"),
    row("voigt-f9", "policing a URL"),
    row("voigt-f10", "a queue by URL"),
    row("voigt-t4", "policing the top URL"),
    row("voigt-f11", "scripts that thrash"),
    row("voigt-4.5.1", "dropping SYNs of a refused client"),
    row("voigt-t5", "cost of URL matching"),
    SheetRow {
        not_built: "answers in the kernel are not built",
        ..row("voigt-4.6", "a hit of the cache in the kernel")
    },
    row("voigt-t6", "cost of each mechanism"),
    row("voigt-f12", "normal clients under a flood: throughput"),
    row("voigt-f13", "normal clients under a flood: response time"),
    row("mvmdp-f14", "responses over offered connections"),
    row("mvmdp-avail", "availability under crashes"),
];

/// The row of a figure.
pub fn find(id: &str) -> Option<&'static SheetRow> {
    SHEET.iter().find(|row| row.id == id)
}
