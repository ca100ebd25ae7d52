//! The media types of files, by the ending of their names.

use std::fmt;

/// A media type for files whose names have an ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMediaType {
    ending: Box<str>,
    media_type: Box<str>,
}

impl FileMediaType {
    /// Reads the ending `ts` and the type `text/plain`, perhaps with parameters.
    ///
    /// # Errors
    /// [`FileMediaTypeError`] for what no name ends in, or what is no type.
    pub fn parse(ending: &str, media_type: &str) -> Result<FileMediaType, FileMediaTypeError> {
        let is_in_names = |c: char| !c.is_control() && !['.', '/', '\\'].contains(&c);
        if ending.is_empty() || !ending.chars().all(is_in_names) {
            return Err(FileMediaTypeError::Ending);
        }
        let (essence, parameters) = media_type.split_once(';').unwrap_or((media_type, " "));
        let is_token = |text: &str| {
            let is_good = |c: u8| c.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&c);
            !text.is_empty() && text.bytes().all(is_good)
        };
        let is_type = essence
            .trim_end()
            .split_once('/')
            .is_some_and(|(top, sub)| is_token(top) && is_token(sub));
        let is_plain = |c: u8| c.is_ascii_graphic() || c == b' ';
        if !is_type || parameters.is_empty() || !parameters.bytes().all(is_plain) {
            return Err(FileMediaTypeError::Type);
        }
        let ending = ending.to_ascii_lowercase().into();
        Ok(FileMediaType { ending, media_type: media_type.into() })
    }

    /// The ending without the dot, in lower case.
    pub fn ending(&self) -> &str {
        &self.ending
    }

    /// The value of `Content-Type`; a charset is added to types of text that have none.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }
}

/// The reason why a type is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMediaTypeError {
    /// A text that is no ending of names.
    Ending,
    /// A text that is not a media type.
    Type,
}

impl fmt::Display for FileMediaTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileMediaTypeError::Ending => "an ending is what follows the last dot of a name",
            FileMediaTypeError::Type => "a media type is two words with a slash, as text/plain",
        })
    }
}

impl std::error::Error for FileMediaTypeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_and_a_type() {
        for (ending, media_type) in [
            ("ts", "video/mp2t"),
            ("wat", "text/x-wat+plain"),
            ("x", "text/plain; charset=latin1"),
            ("7z", "application/vnd.x"),
        ] {
            let parsed = FileMediaType::parse(ending, media_type).unwrap();
            assert_eq!((parsed.ending(), parsed.media_type()), (ending, media_type));
        }
        assert_eq!(FileMediaType::parse("TS", "a/b").unwrap().ending(), "ts");
        for ending in ["", ".ts", "tar.gz", "a/b", "a\n"] {
            let error = FileMediaType::parse(ending, "a/b").unwrap_err();
            assert_eq!(error, FileMediaTypeError::Ending, "{ending}");
        }
        for media_type in
            ["", "text", "text/", "/plain", "a b/c", "a/b/c", "a/b;", "a/b; x\r\nY: z"]
        {
            let error = FileMediaType::parse("ts", media_type).unwrap_err();
            assert_eq!(error, FileMediaTypeError::Type, "{media_type}");
        }
    }
}
