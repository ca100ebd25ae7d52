//! Lowered tables as maps of the kernel.

use crate::Family;
use crate::kernel::{plain, table};
use crate::lower::Leaf;
use crate::lower::url::PathLeaf;
use crate::types::{PATH_KEY_BYTES, Plain, RawList};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::io;

const NO_PREALLOC: u32 = 1;
const INNER_MAP: u32 = 1 << 12;

pub(crate) fn leaves(leaves: &[Leaf], family: Family) -> io::Result<MapHandle> {
    let (_, shared) = family.all();
    let address_bytes = usize::from(128 - shared) / 8;
    let kind = MapType::LpmTrie;
    let (key_bytes, value_bytes) = (4 + address_bytes, size_of::<RawList>());
    // the kernel requires this flag for LPM tries
    let trie = table(kind, key_bytes, value_bytes, leaves.len(), NO_PREALLOC)?;
    for leaf in leaves {
        let mut key = u32::from(leaf.len - shared).to_ne_bytes().to_vec();
        key.extend(&leaf.first.to_be_bytes()[16 - address_bytes..]);
        trie.update(&key, leaf.list.bytes(), MapFlags::ANY).map_err(plain)?;
    }
    Ok(trie)
}

pub(crate) fn paths(leaves: &[PathLeaf]) -> io::Result<MapHandle> {
    let (kind, value_bytes) = (MapType::LpmTrie, size_of::<RawList>());
    let trie = table(kind, PATH_KEY_BYTES, value_bytes, leaves.len(), NO_PREALLOC)?;
    for leaf in leaves {
        let mut key = (leaf.beginning.len() as u32 * 8).to_ne_bytes().to_vec();
        key.extend(&leaf.beginning);
        key.resize(PATH_KEY_BYTES, 0);
        trie.update(&key, leaf.list.bytes(), MapFlags::ANY).map_err(plain)?;
    }
    Ok(trie)
}

pub(crate) fn array<T: Plain>(values: &[T]) -> io::Result<MapHandle> {
    let array = table(MapType::Array, 4, size_of::<T>(), values.len(), INNER_MAP)?;
    for (at, value) in (0_u32..).zip(values) {
        array.update(&at.to_ne_bytes(), value.bytes(), MapFlags::ANY).map_err(plain)?;
    }
    Ok(array)
}

pub(crate) fn per_cpu(map: &MapHandle, at: u32) -> Vec<Vec<u8>> {
    map.lookup_percpu(&at.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default()
}

pub(crate) fn read_u64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))
}
