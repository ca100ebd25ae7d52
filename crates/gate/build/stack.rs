//! The stack that the programs need: clang's assembly in, the deepest chain of calls of each program out.
//!
//! The kernel adds up the frames of a chain, each rounded up, with those of functions that are passed to
//! `bpf_loop`, and rejects a program that needs more than 512 bytes. A tail call starts with an empty stack.

use std::collections::{BTreeMap, BTreeSet};

/// The unit to which frames are rounded up: 32 bytes before Linux 6.8, and in its interpreter.
const ROUNDED: u32 = 32;

#[derive(Debug, Default)]
struct Frame {
    bytes: u32,
    calls: BTreeSet<String>,
}

/// Each program, the bytes that its deepest chain needs, and that chain.
pub(crate) fn of_programs(assembly: &str) -> Vec<(String, u32, String)> {
    let frames = frames(assembly);
    let called: BTreeSet<&String> = frames.values().flat_map(|frame| &frame.calls).collect();
    let programs = frames.keys().filter(|name| !called.contains(name));
    programs
        .map(|name| {
            let (bytes, chain) = deepest(&frames, name);
            (name.clone(), bytes, chain.join(" > "))
        })
        .collect()
}

fn deepest(frames: &BTreeMap<String, Frame>, name: &str) -> (u32, Vec<String>) {
    let Some(frame) = frames.get(name) else { return (0, Vec::new()) };
    let below = frame.calls.iter().map(|called| deepest(frames, called));
    let (bytes, mut chain) = below.max_by_key(|(bytes, _)| *bytes).unwrap_or_default();
    let own = frame.bytes.max(1).next_multiple_of(ROUNDED);
    chain.insert(0, format!("{name} {own}"));
    (own + bytes, chain)
}

/// The bytes that each function uses below the frame pointer, and the functions that it names.
fn frames(assembly: &str) -> BTreeMap<String, Frame> {
    let is_function = |line: &str| {
        Some(line.trim().strip_prefix(".type")?.trim().strip_suffix(",@function")?.to_owned())
    };
    let names: BTreeSet<String> = assembly.lines().filter_map(is_function).collect();
    let mut frames = BTreeMap::new();
    let mut current: Option<String> = None;
    // registers that hold the frame pointer
    let mut pointers = BTreeSet::new();
    for line in assembly.lines() {
        let line = line.split('#').next().unwrap_or_default();
        if let Some(label) =
            line.trim_end().strip_suffix(':').filter(|label| names.contains(*label))
        {
            current = Some(label.to_owned());
            frames.insert(label.to_owned(), Frame::default());
            pointers.clear();
        }
        let Some(frame) = current.as_ref().and_then(|name| frames.get_mut(name)) else { continue };
        let line = line.trim();
        if let Some(offset) = line.split("(r10 - ").nth(1).and_then(|rest| rest.split(')').next()) {
            frame.bytes = frame.bytes.max(offset.parse().unwrap_or(0));
        }
        if let Some((to, from)) = line.split_once(" = ") {
            match from {
                "r10" => drop(pointers.insert(to.to_owned())),
                _ => drop(pointers.remove(to)),
            }
            let named = from.trim_end_matches(" ll");
            frame.calls.extend(names.get(named).cloned());
        }
        if let Some((register, offset)) = line.split_once(" += -")
            && pointers.contains(register)
        {
            frame.bytes = frame.bytes.max(offset.parse().unwrap_or(0));
        }
        frame.calls.extend(line.strip_prefix("call ").and_then(|name| names.get(name)).cloned());
    }
    frames
}
