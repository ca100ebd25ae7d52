//! A compressed trie: values by the beginning of a text. The cost of a search depends on the length
//! of the text, not on the number of beginnings.

/// Values, each for all texts with the same beginning.
#[derive(Clone, Debug)]
pub(crate) struct Trie<V> {
    /// The nodes. The children of a node stand side by side; the first node is the root.
    nodes: Box<[Node]>,
    /// The first byte of each node's label, apart from the nodes so that a search touches little
    /// memory.
    firsts: Box<[u8]>,
    /// The labels, which nodes add to their parents' text, without their first bytes.
    labels: Box<[u8]>,
    values: Box<[V]>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    label_at: u32,
    label_bytes: u32,
    children_at: u32,
    children: u32,
    /// The index of the node's value, or [`NONE`].
    value: u32,
}

const NONE: u32 = u32::MAX;

impl<V> Default for Trie<V> {
    fn default() -> Trie<V> {
        Trie::new(Vec::new())
    }
}

impl<V> Trie<V> {
    /// Builds the trie. No beginning may be there twice.
    pub(crate) fn new(mut pairs: Vec<(Box<[u8]>, V)>) -> Trie<V> {
        pairs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let (keys, values): (Vec<Box<[u8]>>, Vec<V>) = pairs.into_iter().unzip();
        let mut growing =
            Growing { keys, nodes: Vec::new(), firsts: Vec::new(), labels: Vec::new() };
        growing.grow();
        Trie {
            nodes: growing.nodes.into(),
            firsts: growing.firsts.into(),
            labels: growing.labels.into(),
            values: values.into(),
        }
    }

    /// Calls `show` with the value of each beginning of `text` and its length, the shortest first.
    #[inline]
    pub(crate) fn beginnings(&self, text: &[u8], mut show: impl FnMut(&V, usize)) {
        let mut node = self.nodes[0];
        let mut at = 0;
        loop {
            if let Some(value) = self.values.get(node.value as usize) {
                show(value, at);
            }
            let Some((first, rest)) = text.get(at..).and_then(<[u8]>::split_first) else { return };
            let children = node.children_at as usize..(node.children_at + node.children) as usize;
            let begin = children.start;
            let Some(child) = find(*first, &self.firsts[children]) else { return };
            node = self.nodes[begin + child];
            let label = node.label_at as usize..(node.label_at + node.label_bytes) as usize;
            if !rest.starts_with(&self.labels[label]) {
                return;
            }
            at += 1 + node.label_bytes as usize;
        }
    }
}

/// Finds the child with this first byte. For a few bytes a loop is faster than `memchr`.
#[inline]
fn find(first: u8, firsts: &[u8]) -> Option<usize> {
    match firsts.len() {
        ..=8 => firsts.iter().position(|byte| *byte == first),
        _ => memchr::memchr(first, firsts),
    }
}

/// A trie under construction. Nodes are made in the order of their depth.
struct Growing {
    keys: Vec<Box<[u8]>>,
    nodes: Vec<Node>,
    firsts: Vec<u8>,
    labels: Vec<u8>,
}

impl Growing {
    fn grow(&mut self) {
        // for each node its keys, those below included, and how many bytes it stands for
        let mut spans = vec![(0, self.keys.len(), 0)];
        self.nodes.push(Node {
            label_at: 0,
            label_bytes: 0,
            children_at: 0,
            children: 0,
            value: NONE,
        });
        self.firsts.push(0);
        let mut next = 0;
        while let Some(&(mut begin, end, depth)) = spans.get(next) {
            if begin < end && self.keys[begin].len() == depth {
                self.nodes[next].value = begin as u32;
                begin += 1;
            }
            self.nodes[next].children_at = self.nodes.len() as u32;
            while begin < end {
                let first = self.keys[begin][depth];
                let among = self.keys[begin..end].partition_point(|key| key[depth] == first);
                spans.push((begin, begin + among, self.add(begin, begin + among, depth)));
                self.nodes[next].children += 1;
                begin += among;
            }
            next += 1;
        }
    }

    /// Adds a node for keys that have the byte at `depth` in common; returns how far they are
    /// equal.
    fn add(&mut self, begin: usize, end: usize, depth: usize) -> usize {
        // of sorted keys the first and the last differ most
        let (key, last) = (&self.keys[begin], &self.keys[end - 1]);
        let alike = key.iter().zip(last).take_while(|(a, b)| a == b).count();
        let label = &key[depth + 1..alike];
        self.nodes.push(Node {
            label_at: self.labels.len() as u32,
            label_bytes: label.len() as u32,
            children_at: 0,
            children: 0,
            value: NONE,
        });
        self.firsts.push(key[depth]);
        self.labels.extend_from_slice(label);
        alike
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn nothing_is_found_in_nothing() {
        Trie::<()>::default().beginnings(b"/a", |(), _| unreachable!());
    }

    proptest! {
        #[test]
        fn all_beginnings_of_a_text_are_found(keys: BTreeSet<Vec<u8>>, texts: Vec<Vec<u8>>) {
            // only three different bytes, so that beginnings are often equal
            let narrow = |text: &Vec<u8>| text.iter().map(|byte| byte % 3).collect::<Box<[u8]>>();
            let keys: BTreeSet<Box<[u8]>> = keys.iter().map(narrow).collect();
            let trie = Trie::new(keys.iter().map(|key| (key.clone(), key.clone())).collect());
            for text in texts.iter().map(narrow).chain(keys.iter().cloned()) {
                let mut found = Vec::new();
                trie.beginnings(&text, |key, bytes| {
                    assert_eq!(key.len(), bytes);
                    found.push(key.clone());
                });
                let expected: Vec<_> =
                    keys.iter().filter(|key| text.starts_with(key)).cloned().collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
