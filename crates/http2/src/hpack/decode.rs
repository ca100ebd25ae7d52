//! Decodes header blocks to fields (RFC 7541 §3).

use super::table::{DynamicTable, Faults, HpackEntry};
use super::{HpackError, huffman, integer};
use crate::fields::DecodedFields;
use crate::known_names::{KnownName, STATIC, is_name, is_value};

/// Decodes the header blocks of one direction of one connection, one after the other.
#[derive(Debug)]
pub struct HpackDecoder {
    table: DynamicTable,
    /// The largest table that the peer may request, in bytes as counted by RFC 7541 §4.1.
    table_bytes: usize,
    /// The number of bytes that the last block copied from the table.
    copied_bytes: usize,
}

impl HpackDecoder {
    /// A decoder whose table holds up to `table_bytes` (SETTINGS_HEADER_TABLE_SIZE).
    pub fn new(table_bytes: usize) -> HpackDecoder {
        HpackDecoder { table: DynamicTable::new(table_bytes), table_bytes, copied_bytes: 0 }
    }

    /// Decodes a complete block into `fields`, which says whether they are valid. A block is decoded to its
    /// end even if there are more fields than allowed, because later blocks depend on the table.
    ///
    /// # Errors
    /// [`HpackError`]; the decoder must not be used any more.
    pub fn decode(&mut self, block: &[u8], fields: &mut DecodedFields) -> Result<(), HpackError> {
        self.copied_bytes = 0;
        let mut rest = block;
        while let [0x20..=0x3f, ..] = rest {
            let (size, used) = integer::read(rest, 5)?;
            if size > self.table_bytes {
                return Err(HpackError::TableSize);
            }
            self.table.resize(size);
            rest = &rest[used..];
        }
        while let Some(&first) = rest.first() {
            let used = match first {
                0x80.. => self.indexed(rest, fields)?,
                0x40.. => self.literal(rest, 6, fields)?,
                0x20.. => return Err(HpackError::TableSize),
                _ => self.literal(rest, 4, fields)?,
            };
            rest = &rest[used..];
        }
        fields.end();
        Ok(())
    }

    /// The number of bytes that the last block copied from the table. A field of a few bytes can refer to one
    /// as long as the table, and be added to it again each time.
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes
    }

    /// The heap memory of the decoder.
    pub fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
    }

    /// The most heap memory of a decoder with a table of `table_bytes`.
    pub const fn most_heap_bytes(table_bytes: usize) -> usize {
        DynamicTable::most_heap_bytes(table_bytes)
    }

    /// Decodes an indexed field (§6.1).
    #[inline]
    fn indexed(&mut self, bytes: &[u8], fields: &mut DecodedFields) -> Result<usize, HpackError> {
        let (index, used) = integer::read(bytes, 7)?;
        if let Some((name, value)) = STATIC.get(index.wrapping_sub(1)) {
            let (place, known) = (fields.begin(), STATIC_KNOWN[index - 1]);
            if !known.is_pseudo() {
                place.names.extend_from_slice(name.as_bytes());
            }
            place.values.extend_from_slice(value.as_bytes());
            fields.add(known, false);
            return Ok(used);
        }
        let entry = self.dynamic(index)?;
        let len = entry.name_len as usize + entry.value_len as usize;
        if fields.has_room(len) {
            self.copied_bytes += len;
            let place = fields.begin();
            if !entry.known.is_pseudo() {
                self.table.copy_name(entry, place.names);
            }
            self.table.copy_value(entry, place.values);
            fields.add(entry.known, entry.faults.any());
        }
        Ok(used)
    }

    /// Decodes a literal field (§6.2): `bits` is 6 if the field is added to the table.
    fn literal(
        &mut self,
        bytes: &[u8],
        bits: u32,
        fields: &mut DecodedFields,
    ) -> Result<usize, HpackError> {
        let (index, mut used) = integer::read(bytes, bits)?;
        let is_added = bits == 6;
        let is_kept = match index {
            0..=61 => true,
            _ => is_added || fields.has_room(self.dynamic(index)?.name_len as usize),
        };
        let place = fields.begin();
        let (known, has_faulty_name) = match index {
            0 => {
                let start = place.names.len();
                used += string(&bytes[used..], place.names)?;
                let name = &place.names[start..];
                let known = KnownName::of(name);
                (known, !known.is_pseudo() && !is_name(name))
            }
            1..=61 => {
                let known = STATIC_KNOWN[index - 1];
                if is_added || !known.is_pseudo() {
                    place.names.extend_from_slice(STATIC[index - 1].0.as_bytes());
                }
                (known, false)
            }
            _ => {
                let entry = self.dynamic(index)?;
                if is_kept {
                    self.copied_bytes += entry.name_len as usize;
                    self.table.copy_name(entry, place.names);
                }
                (entry.known, entry.faults.name)
            }
        };
        used += string(&bytes[used..], place.values)?;
        let (name, value) = (&place.names[place.name_start..], &place.values[place.value_start..]);
        let faults = Faults { name: has_faulty_name, value: !is_value(value) };
        if is_added {
            self.table.insert(name, value, known, faults);
        }
        fields.add(known, faults.any());
        Ok(used)
    }

    fn dynamic(&self, index: usize) -> Result<HpackEntry, HpackError> {
        index.checked_sub(62).and_then(|age| self.table.get(age)).ok_or(HpackError::Index)
    }
}

/// The known name of each entry of the static table.
const STATIC_KNOWN: [KnownName; 61] = {
    let mut known = [KnownName::OTHER; 61];
    let mut at = 0;
    while at < 61 {
        let is_same = at > 0 && same(STATIC[at].0.as_bytes(), STATIC[at - 1].0.as_bytes());
        known[at] = if is_same { known[at - 1] } else { KnownName(at as u8 + 1) };
        at += 1;
    }
    known
};

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Appends the string at the front of `bytes` to `out` (§5.2), and returns the number of bytes used.
#[inline]
fn string(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, HpackError> {
    let (len, used) = integer::read(bytes, 7)?;
    let text = bytes.get(used..used + len).ok_or(HpackError::Cut)?;
    if bytes[0] & 0x80 == 0 {
        out.extend_from_slice(text);
    } else {
        huffman::decode(text, out)?;
    }
    Ok(used + len)
}

#[cfg(test)]
mod tests;
