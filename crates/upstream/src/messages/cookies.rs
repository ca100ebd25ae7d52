//! The cookies in one field, perhaps without one that is hidden from applications.

/// Joins the values of `Cookie` fields, without the cookies named `hidden`; `None` if none is left.
pub fn join<'v>(values: impl Iterator<Item = &'v [u8]>, hidden: Option<&str>) -> Option<Vec<u8>> {
    let Some(hidden) = hidden else {
        return Some(values.collect::<Vec<_>>().join(b"; ".as_slice()));
    };
    let name = |pair: &[u8]| {
        let end = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        pair[..end].trim_ascii() == hidden.as_bytes()
    };
    let pairs = values.flat_map(|value| value.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    let kept: Vec<_> = pairs.filter(|pair| !pair.is_empty() && !name(pair)).collect();
    (!kept.is_empty()).then(|| kept.join(b"; ".as_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_left_out_and_the_others_stay() {
        for (values, expected) in [
            (&["id=x"][..], None),
            (&["id=x", " ; id = y"], None),
            (&["a=b; id=x; c=\"d\""], Some("a=b; c=\"d\"")),
            (&["a=b;id=x", "c"], Some("a=b; c")),
            (&["Id=x; idx=1; id2"], Some("Id=x; idx=1; id2")),
            (&["a=id=x"], Some("a=id=x")),
        ] {
            let found = join(values.iter().map(|value| value.as_bytes()), Some("id"));
            let found = found.map(|text| String::from_utf8(text).unwrap());
            assert_eq!(found.as_deref(), expected, "{values:?}");
        }
        let all = join([&b"a=b;  id=x"[..], b"c"].into_iter(), None);
        assert_eq!(all.as_deref(), Some(&b"a=b;  id=x; c"[..]));
    }
}
