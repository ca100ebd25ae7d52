//! Configurations of other servers: templates with words and lines that may stay or go.

/// Fills in `template`. A line that begins with `@tag@ ` stays, without the tag, if `tags` says so;
/// `@WORD@` is replaced. The tag `root` stands for servers started by root, which drop to Debian's
/// user for web servers; others keep their user.
pub fn fill(template: &str, tags: &[(&str, bool)], words: &[(&str, String)]) -> String {
    let is_root = rustix::process::geteuid().is_root();
    let stays = |tag: &str| {
        let known = tags.iter().find(|(name, _)| *name == tag).map(|(_, stays)| *stays);
        known.or((tag == "root").then_some(is_root))
    };
    let mut text = String::new();
    for line in template.lines() {
        let tagged = line.trim_start().strip_prefix('@').and_then(|rest| rest.split_once("@ "));
        match tagged.and_then(|(tag, rest)| Some((stays(tag)?, rest))) {
            Some((false, _)) => continue,
            Some((true, rest)) => text += rest,
            None => text += line,
        }
        text.push('\n');
    }
    for (word, value) in words {
        text = text.replace(&format!("@{word}@"), value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagged_lines_stay_or_go_and_words_are_replaced() {
        let template = "a @PORT@\n  @log@ on @TMP@\n@nolog@ off\n@ROOT@ stays";
        let words =
            [("PORT", "80".to_owned()), ("TMP", "/t".to_owned()), ("ROOT", "/r".to_owned())];
        let text = fill(template, &[("log", true), ("nolog", false)], &words);
        assert_eq!(text, "a 80\non /t\n/r stays\n");
        assert!(!fill("@root@ user", &[("root", false)], &[]).contains("user"));
    }
}
