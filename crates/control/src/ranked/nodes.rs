//! The table of entries, and the lists that link them.

/// No entry.
const NONE: u32 = u32::MAX;

/// The most entries the table can hold.
pub(super) const MOST: usize = NONE as usize;

#[derive(Debug)]
struct Node<T> {
    /// `None` while the place is free.
    item: Option<T>,
    previous: u32,
    /// In a free place: the next free one.
    next: u32,
    /// Changes when the place is freed, so that old keys name nothing.
    generation: u32,
    bucket: u16,
    rank: u8,
    weight: u8,
}

/// All entries of one [`Ranked`](super::Ranked).
#[derive(Debug)]
pub(super) struct Nodes<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    used: usize,
}

/// A queue of entries.
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

    /// A place for `item`, in no list yet. The caller keeps the count below [`MOST`].
    #[inline]
    pub(super) fn put(&mut self, item: T, rank: u8, bucket: u16, weight: u8) -> u32 {
        self.used += 1;
        let index = self.free;
        if let Some(node) = self.nodes.get_mut(index as usize) {
            self.free = node.next;
            node.item = Some(item);
            (node.rank, node.bucket, node.weight) = (rank, bucket, weight);
            return index;
        }
        let index = self.nodes.len() as u32;
        let (item, previous, next) = (Some(item), NONE, NONE);
        self.nodes.push(Node { item, previous, next, generation: 0, bucket, rank, weight });
        index
    }

    /// Gives the place of an entry that is in no list any more back.
    #[inline]
    pub(super) fn free(&mut self, index: u32) -> Option<T> {
        let node = self.nodes.get_mut(index as usize)?;
        let item = node.item.take()?;
        node.generation = node.generation.wrapping_add(1);
        node.next = self.free;
        self.free = index;
        self.used -= 1;
        Some(item)
    }

    pub(super) fn generation(&self, index: u32) -> u32 {
        self.nodes[index as usize].generation
    }

    pub(super) fn bucket(&self, index: u32) -> u16 {
        self.nodes[index as usize].bucket
    }

    pub(super) fn weight(&self, index: u32) -> u8 {
        self.nodes[index as usize].weight
    }

    /// The rank of the entry that this place and generation name, if it is still there.
    pub(super) fn find(&self, index: u32, generation: u32) -> Option<usize> {
        let node = self.nodes.get(index as usize)?;
        let is_it = node.item.is_some() && node.generation == generation;
        is_it.then_some(usize::from(node.rank))
    }

    #[inline]
    pub(super) fn append(&mut self, list: &mut List, index: u32) {
        let node = &mut self.nodes[index as usize];
        (node.previous, node.next) = (list.tail, NONE);
        match self.nodes.get_mut(list.tail as usize) {
            Some(tail) => tail.next = index,
            None => list.head = index,
        }
        list.tail = index;
    }

    /// Takes an entry out of the list it is in.
    #[inline]
    pub(super) fn unlink(&mut self, list: &mut List, index: u32) {
        let Node { previous, next, .. } = self.nodes[index as usize];
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
