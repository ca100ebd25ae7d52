//! `forebay why REQUEST-ID`: the decision about a refused request, in a sentence.

use crate::command::CommandAnswer;
use forebay_handler::refusals::{MOST, RefusalMemory};
use forebay_http::date;

/// Answers for a request id.
pub fn answer(id: &str, refusals: &RefusalMemory, now_ms: u64) -> CommandAnswer {
    let id = id.trim();
    if let Some(refusal) = refusals.find(id.as_bytes()) {
        return CommandAnswer { code: 0, text: format!("{refusal}\n") };
    }
    let known = match refusals.reach() {
        (0, _) | (_, None) => "no request was refused since the start".to_owned(),
        (count, Some(oldest_ms)) => format!(
            "the last {count} refusals are remembered, since {} ({} s ago)",
            date::rfc3339(oldest_ms / 1000),
            now_ms.saturating_sub(oldest_ms) / 1000
        ),
    };
    CommandAnswer::failed(format_args!(
        "no refused request has the id {id:?}: {known}. At most {MOST} are, and only requests that were refused or \
         that no application has answered; the access log has the others"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_handler::refusals::{RememberedRefusal, ShortText};

    #[test]
    fn an_id_that_is_not_known_says_how_far_the_memory_reaches() {
        let memory = RefusalMemory::default();
        let answer = |id: &str, memory: &RefusalMemory| super::answer(id, memory, 61_000);
        let none = answer("abc", &memory);
        assert!(none.code == 1 && none.text.contains("no request was refused since the start"));
        let empty = ShortText::default;
        memory.remember(RememberedRefusal {
            ids: [ShortText::of("abc"), empty()],
            unix_ms: 1_000,
            client: "203.0.113.7".parse().unwrap(),
            status: 503,
            asked: ShortText::of("GET a/"),
            class: empty(),
            reason: None,
            rule: empty(),
            level: "normal",
            ban: empty(),
            upstream: empty(),
            told: "The application is out of service",
        });
        let known = answer(" abc", &memory);
        assert_eq!(
            (known.code, known.text.as_str()),
            (
                0,
                "1970-01-01T00:00:01Z: GET a/ of 203.0.113.7 got 503, because The application is out of service\n"
            )
        );
        let other = answer("abd", &memory).text;
        assert!(
            other.contains(
                "the last 1 refusals are remembered, since 1970-01-01T00:00:01Z (60 s ago)"
            )
        );
    }
}
