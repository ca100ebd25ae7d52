//! The status page of php-fpm (`pm.status_path`): how many workers there are, and how many requests
//! wait for one.

use super::record::{
    HEADER_BYTES, RecordHeader, RecordKind, begin, end_of_params, end_of_stdin, pair, params,
};

/// The state of a pool of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Whether the number of workers is fixed.
    is_static: bool,
    /// The number of requests that wait for a worker.
    waiting: u32,
    /// The number of workers without a request.
    idle: u32,
    /// The number of all workers now.
    workers: u32,
    /// How often the pool has reached its limit of workers.
    reached: u64,
}

/// The request for the status page at this path.
pub fn question(path: &str) -> Vec<u8> {
    let mut pairs = Vec::new();
    for (name, value) in [
        ("REQUEST_METHOD", "GET"),
        ("SCRIPT_NAME", path),
        ("SCRIPT_FILENAME", path),
        ("REQUEST_URI", path),
        ("QUERY_STRING", ""),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
    ] {
        pair(name, &[value.as_bytes()], &mut pairs);
    }
    let mut asked = Vec::new();
    begin(false, &mut asked);
    params(&pairs, &mut asked);
    end_of_params(&mut asked);
    end_of_stdin(&mut asked);
    asked
}

impl PoolStatus {
    /// Reads a complete answer.
    pub fn read(answer: &[u8]) -> Option<PoolStatus> {
        let text = stdout(answer)?;
        let text = std::str::from_utf8(&text).ok()?;
        let (_, body) = text.split_once("\r\n\r\n")?;
        let value = |name: &str| {
            let values = body.lines().filter_map(|line| line.split_once(':'));
            values.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.trim())
        };
        let number = |name: &str| value(name)?.parse::<u64>().ok();
        let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
        Some(PoolStatus {
            is_static: value("process manager")? == "static",
            waiting: small("listen queue")?,
            idle: small("idle processes")?,
            workers: small("total processes").filter(|workers| *workers > 0)?,
            reached: number("max children reached")?,
        })
    }

    /// The number of requests on which the pool can work at once; `None` while it may still start
    /// workers. If that number is already `known`, the server's limit keeps requests from waiting at
    /// the pool; then it is enough that all workers are busy.
    pub fn bound(&self, known: Option<u32>) -> Option<u32> {
        let may_confirm = self.waiting > 0 || known == Some(self.workers);
        let is_full = self.idle == 0 && may_confirm && self.reached > 0;
        (self.is_static || is_full).then_some(self.workers)
    }
}

/// The standard output in an answer.
fn stdout(mut answer: &[u8]) -> Option<Vec<u8>> {
    let mut said = Vec::new();
    while let Some((head, rest)) = answer.split_at_checked(HEADER_BYTES) {
        let header = RecordHeader::parse(head.try_into().ok()?).ok()?;
        let (content, rest) = rest.split_at_checked(header.content.into())?;
        match header.kind {
            RecordKind::Stdout => said.extend_from_slice(content),
            RecordKind::End => return Some(said),
            _ => {}
        }
        answer = rest.get(usize::from(header.padding)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(manager: &str, waiting: u32, idle: u32, workers: u32, reached: u32) -> Vec<u8> {
        let text = format!(
            "Content-type: text/plain;charset=UTF-8\r\n\r\npool:                 www\n\
             process manager:      {manager}\nstart time:           30/Nov/2026:13:00:00 +0000\n\
             accepted conn:        7\nlisten queue:         {waiting}\nmax listen queue:     9\n\
             listen queue len:     511\nidle processes:       {idle}\nactive processes:     3\n\
             total processes:      {workers}\nmax children reached: {reached}\nslow requests:        0\n"
        );
        let mut bytes = Vec::new();
        for part in text.as_bytes().chunks(100) {
            let [high, low] = (part.len() as u16).to_be_bytes();
            bytes.extend([1, 6, 0, 1, high, low, 3, 0]);
            bytes.extend(part);
            bytes.extend([0; 3]);
        }
        bytes.extend([1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn a_pool_says_how_many_workers_it_has() {
        for (manager, waiting, idle, workers, reached, expected) in [
            ("static", 0, 5, 8, 0, Some(8)),
            // the pool may start more workers
            ("dynamic", 0, 2, 5, 0, None),
            ("dynamic", 3, 0, 5, 0, None),
            // the pool is at its limit
            ("dynamic", 3, 0, 20, 1, Some(20)),
            ("ondemand", 0, 0, 20, 1, None),
        ] {
            let status =
                PoolStatus::read(&answer(manager, waiting, idle, workers, reached)).unwrap();
            assert_eq!(status.bound(None), expected, "{status:?}");
        }
    }

    #[test]
    fn what_is_no_status_says_nothing() {
        let whole = answer("static", 0, 5, 8, 0);
        for end in 0..whole.len() - 8 {
            assert_eq!(PoolStatus::read(&whole[..end]), None, "{end}");
        }
        assert_eq!(PoolStatus::read(&answer("static", 0, 0, 0, 0)), None);
        let page = b"Content-Type: text/html\r\n\r\n<html>";
        let mut other = vec![1, 6, 0, 1, 0, page.len() as u8, 0, 0];
        other.extend(page);
        other.extend([1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(PoolStatus::read(&other), None);
    }

    #[test]
    fn a_question_is_a_whole_request() {
        let (pairs, body) = super::super::record::tests::received(&question("/status"));
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert!(pairs.contains(&("SCRIPT_NAME", "/status")) && body.is_empty(), "{pairs:?}");
    }
}
