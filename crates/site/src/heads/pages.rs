//! Small pages for answers without content: errors and redirects.

use crate::heads::fields::{AnswerFields, HeaderRuleSet};
use crate::heads::head_lines::{length_line, server, status_line};
use forebay_conn::Reply;
use forebay_http::status;

/// The methods that the server answers.
const ALLOWED: &[u8] = b"GET, HEAD, OPTIONS";

/// The style sheet in each page, because an error has no other files.
const STYLE: &str = include_str!("page.css");

/// The end of each page; the id of a request stands before it.
const END: &str = "</main>\n</body>\n</html>\n";

/// The statuses of redirects.
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// Name and value.
pub(crate) type PageField = (&'static str, Vec<u8>);

/// An answer instead of the one that was asked for, with a few words for the client.
#[derive(Debug)]
pub(crate) struct RefusalPage {
    pub(crate) status: u16,
    pub(crate) text: &'static str,
    /// Fields that belong to it.
    pub(crate) fields: Vec<PageField>,
}

impl RefusalPage {
    /// A page with the fields that its status always needs.
    pub(crate) fn new(status: u16, text: &'static str) -> RefusalPage {
        let mut fields = Vec::new();
        match status {
            405 => fields.push(("Allow", ALLOWED.to_vec())),
            406 => fields.push(("Vary", b"Accept-Encoding".to_vec())),
            _ => {}
        }
        RefusalPage { status, text, fields }
    }

    /// A page for a status alone.
    pub(crate) fn of(status: u16) -> RefusalPage {
        let text = match status {
            404 => "There is nothing at this address",
            403 => "This file may not be read",
            429 => "Too many requests came from here; please try again later",
            503 => "The server is busy; please try again later",
            410 => "There is nothing at this address any more",
            400..500 => "The request cannot be answered",
            _ => "The server cannot answer at the moment",
        };
        RefusalPage::new(status, text)
    }
}

/// The pages of one site, each written once.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) is_server_named: bool,
    missing: Page,
    denied: Page,
    /// The page for clients that policy refuses.
    busy: Page,
    limited: Page,
    options: Vec<u8>,
    slash: Box<[u8]>,
    moved: [Box<[u8]>; REDIRECTS.len()],
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    head: Vec<u8>,
    body: Vec<u8>,
    /// The end of the fields before `Content-Length`, and the place of the request's id in the
    /// body. Only in pages of the server's own.
    id_places: Option<(usize, usize)>,
}

impl Page {
    #[inline]
    pub(crate) fn write<B>(&self, reply: &mut Reply<'_, B>) {
        if reply.request_id.is_some() && self.id_places.is_some() {
            return self.write_with_id(reply);
        }
        reply.head(self.status, &self.head);
        reply.copy(&self.body);
    }

    /// The same with the id of the request, which people can read.
    #[cold]
    fn write_with_id<B>(&self, reply: &mut Reply<'_, B>) {
        let Some((fields_end, at)) = self.id_places else { return };
        let id = reply.request_id.as_deref().unwrap_or_default().escape_ascii();
        let told = format!("<p><small>Request ID: <code>{id}</code></small></p>\n");
        let mut head = self.head.get(..fields_end).unwrap_or_default().to_vec();
        length_line(&mut head, (self.body.len() + told.len()) as u64);
        reply.head(self.status, &head);
        let (before, after) = self.body.split_at_checked(at).unwrap_or((&self.body, b""));
        [before, told.as_bytes(), after].into_iter().for_each(|part| reply.copy(part));
    }

    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

fn body(status: u16, text: &str) -> Vec<u8> {
    let reason = status::reason(status);
    let (first, rest) = text.split_at_checked(1).unwrap_or_default();
    let first = first.to_ascii_uppercase();
    // the color scheme stands before everything that is painted: no flash of white in the dark
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{status} {reason}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{status} {reason}</h1>\n<p>{first}{rest}.</p>\n{END}"
    )
    .into_bytes()
}

impl Pages {
    pub(crate) fn new(is_server_named: bool) -> Pages {
        let page =
            |status| page(is_server_named, &RefusalPage::of(status), HeaderRuleSet::default());
        Pages {
            is_server_named,
            missing: page(404),
            denied: page(403),
            busy: page(503),
            limited: page(429),
            options: options(is_server_named, HeaderRuleSet::default()),
            slash: body(301, "This is a directory; its address ends in a slash").into(),
            moved: REDIRECTS.map(|status| body(status, "This has another address").into()),
        }
    }

    pub(crate) fn missing<B>(&self, reply: &mut Reply<'_, B>) {
        self.missing.write(reply);
    }

    pub(crate) fn denied<B>(&self, reply: &mut Reply<'_, B>) {
        self.denied.write(reply);
    }

    /// Answers with an error in overload, with a status that the policy gives.
    pub(crate) fn turn_away<B>(&self, status: u16, reply: &mut Reply<'_, B>) {
        match status {
            503 => self.busy.write(reply),
            429 => self.limited.write(reply),
            403 => self.denied.write(reply),
            404 => self.missing.write(reply),
            status => self.refuse(&RefusalPage::of(status), HeaderRuleSet::default(), reply),
        }
    }

    pub(crate) fn options<B>(&self, header_rules: HeaderRuleSet<'_>, reply: &mut Reply<'_, B>) {
        match header_rules.is_empty() {
            true => reply.head(204, &self.options),
            false => reply.head(204, &options(self.is_server_named, header_rules)),
        }
    }

    /// Answers with any error.
    pub(crate) fn refuse<B>(
        &self,
        refusal: &RefusalPage,
        header_rules: HeaderRuleSet<'_>,
        reply: &mut Reply<'_, B>,
    ) {
        self.page(refusal, header_rules).write(reply);
    }

    /// The page of any error, to be kept.
    pub(crate) fn page(&self, refusal: &RefusalPage, header_rules: HeaderRuleSet<'_>) -> Page {
        page(self.is_server_named, refusal, header_rules)
    }

    /// The page of an error with a body of the site's own.
    pub(crate) fn page_of(
        &self,
        refusal: &RefusalPage,
        content_type: &str,
        body: Vec<u8>,
        header_rules: HeaderRuleSet<'_>,
    ) -> Page {
        let (status, named) = (refusal.status, self.is_server_named);
        let mut head = typed_head(named, status, content_type, &refusal.fields, header_rules);
        length_line(&mut head, body.len() as u64);
        Page { status, head, body, id_places: None }
    }

    /// The body of a redirect.
    pub(crate) fn moved(&self, status: u16, is_for_slash: bool) -> &[u8] {
        let at = REDIRECTS.iter().position(|redirect| *redirect == status).unwrap_or(0);
        if is_for_slash { &self.slash } else { &self.moved[at] }
    }

    /// The head of a redirect up to `Location`, which is written when it is answered.
    pub(crate) fn moved_head(
        &self,
        status: u16,
        is_for_slash: bool,
        header_rules: HeaderRuleSet<'_>,
    ) -> Box<[u8]> {
        let body_bytes = self.moved(status, is_for_slash).len() as u64;
        let mut head = html_head(self.is_server_named, status, &[], header_rules);
        length_line(&mut head, body_bytes);
        head.into_boxed_slice()
    }
}

/// Status and fields of a small page.
fn html_head(
    is_server_named: bool,
    status: u16,
    more: &[PageField],
    header_rules: HeaderRuleSet<'_>,
) -> Vec<u8> {
    typed_head(is_server_named, status, "text/html; charset=utf-8", more, header_rules)
}

fn typed_head(
    is_server_named: bool,
    status: u16,
    content_type: &str,
    more: &[PageField],
    header_rules: HeaderRuleSet<'_>,
) -> Vec<u8> {
    let mut head = status_line(status);
    let mut fields = AnswerFields::default();
    fields.push("Content-Type", content_type.as_bytes());
    server(is_server_named, &mut fields);
    more.iter().for_each(|(name, value)| fields.push(name, value.as_slice()));
    fields.apply(header_rules, None);
    if status >= 400 {
        fields.shorten_for_error(None);
    }
    fields.write(&mut head);
    head
}

fn page(is_server_named: bool, refusal: &RefusalPage, header_rules: HeaderRuleSet<'_>) -> Page {
    let RefusalPage { status, text, fields } = refusal;
    let body = body(*status, text);
    let mut head = html_head(is_server_named, *status, fields, header_rules);
    let fields_end = head.len();
    length_line(&mut head, body.len() as u64);
    let at = body.len().checked_sub(END.len());
    Page { status: *status, head, body, id_places: at.map(|at| (fields_end, at)) }
}

fn options(is_server_named: bool, header_rules: HeaderRuleSet<'_>) -> Vec<u8> {
    let mut head = status_line(204);
    let mut fields = AnswerFields::default();
    server(is_server_named, &mut fields);
    fields.apply(header_rules, None);
    fields.push("Allow", ALLOWED);
    fields.write(&mut head);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages have all that a browser needs to show them well at once, within one segment with their
    /// head.
    #[test]
    fn a_page_is_for_phones_and_for_the_dark() {
        for status in [400, 401, 403, 404, 405, 416, 421, 429, 500, 503] {
            let page = page(true, &RefusalPage::of(status), HeaderRuleSet::default());
            let text = String::from_utf8(page.body.clone()).unwrap();
            assert!(page.bytes() < 1400, "{} bytes", page.bytes());
            let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
            place("name=\"viewport\" content=\"width=device-width");
            assert!(
                place("content=\"light dark\"") < place("<style>"),
                "before anything is painted"
            );
            assert!(place("prefers-color-scheme:dark") < place("</head>"));
            assert!(!text.contains("src=") && !text.contains("href="), "it needs no other file");
            assert!(place("<body>") < place(&format!("<h1>{status} ")));
        }
    }
}
