//! Numbers as decimal digits. A head has several of them, and for each one a formatter would take
//! longer than the rest of its line.

/// Appends the digits of a number.
pub fn push(mut number: u64, out: &mut Vec<u8>) {
    let mut text = [0; 20];
    let mut at = text.len();
    loop {
        at -= 1;
        // a digit
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_a_formatter() {
        for one in [0, 7, 10, 99, 100, 65_535, 1 << 40, u64::MAX] {
            let mut out = b"a".to_vec();
            push(one, &mut out);
            assert_eq!(out, format!("a{one}").into_bytes());
        }
    }
}
