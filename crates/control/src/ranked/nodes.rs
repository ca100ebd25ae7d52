//! The table of entries, and the lists that link them.

use super::Key;

/// The index that stands for no entry.
const NONE: u32 = u32::MAX;

/// The largest number of entries in the table.
pub(super) const MOST: usize = NONE as usize;

#[derive(Debug)]
struct Node<T> {
    /// The item; `None` while the place is free.
    item: Option<T>,
    previous: u32,
    /// The next entry in the list, or the next free place.
    next: u32,
    /// A number that changes when the place is freed, so that old keys find nothing.
    generation: u32,
    mark: Mark,
}

/// The bucket, rank and weight of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) bucket: u16,
    pub(super) rank: u8,
    pub(super) weight: u8,
}

/// All entries of a [`Ranked`](super::Ranked).
#[derive(Debug)]
pub(super) struct Nodes<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    used: usize,
}

/// A linked list of entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NONE, tail: NONE };

    pub(super) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

impl<T> Nodes<T> {
    pub(super) fn new() -> Nodes<T> {
        Nodes { nodes: Vec::new(), free: NONE, used: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Adds `item` at the end of `list`. The caller keeps the number of entries below [`MOST`].
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, item: T, mark: Mark) -> Key {
        self.used += 1;
        let (previous, next) = (list.tail, NONE);
        let free = self.free;
        let key = match self.nodes.get_mut(free as usize) {
            Some(node) => {
                self.free = node.next;
                let generation = node.generation;
                *node = Node { item: Some(item), previous, next, generation, mark };
                Key { index: free, generation }
            }
            None => {
                let index = self.nodes.len() as u32;
                self.nodes.push(Node { item: Some(item), previous, next, generation: 0, mark });
                Key { index, generation: 0 }
            }
        };
        match self.nodes.get_mut(previous as usize) {
            Some(tail) => tail.next = key.index,
            None => list.head = key.index,
        }
        list.tail = key.index;
        key
    }

    /// Takes the first item of `list`.
    #[inline]
    pub(super) fn pop(&mut self, list: &mut List) -> Option<T> {
        let index = list.head;
        let node = self.nodes.get_mut(index as usize)?;
        let item = node.item.take()?;
        let next = node.next;
        node.generation = node.generation.wrapping_add(1);
        node.next = self.free;
        self.free = index;
        self.used -= 1;
        list.head = next;
        match self.nodes.get_mut(next as usize) {
            Some(node) => node.previous = NONE,
            None => list.tail = NONE,
        }
        Some(item)
    }

    /// Takes the item of an entry of `list`, wherever it is in it.
    pub(super) fn remove(&mut self, list: &mut List, index: u32) -> Option<T> {
        self.unlink(list, index);
        self.pop(&mut List { head: index, tail: index })
    }

    /// The mark of an entry that is in a list.
    pub(super) fn mark(&self, index: u32) -> Mark {
        self.nodes[index as usize].mark
    }

    /// The rank of the entry that this key names, if it is still there.
    pub(super) fn find(&self, key: Key) -> Option<usize> {
        let node = self.nodes.get(key.index as usize)?;
        let is_it = node.item.is_some() && node.generation == key.generation;
        is_it.then_some(usize::from(node.mark.rank))
    }

    /// Moves the first entry of `from` to the end of `to`.
    pub(super) fn shift(&mut self, from: &mut List, to: &mut List) {
        let index = from.head;
        self.unlink(from, index);
        let node = &mut self.nodes[index as usize];
        (node.previous, node.next) = (to.tail, NONE);
        match self.nodes.get_mut(to.tail as usize) {
            Some(tail) => tail.next = index,
            None => to.head = index,
        }
        to.tail = index;
    }

    /// Unlinks an entry from its list; it then is a list of its own.
    fn unlink(&mut self, list: &mut List, index: u32) {
        let node = &mut self.nodes[index as usize];
        let previous = std::mem::replace(&mut node.previous, NONE);
        let next = std::mem::replace(&mut node.next, NONE);
        match self.nodes.get_mut(previous as usize) {
            Some(node) => node.next = next,
            None => list.head = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(node) => node.previous = previous,
            None => list.tail = previous,
        }
    }
}
