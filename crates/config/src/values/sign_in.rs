//! The address of a sign-in page.

use crate::problems::problem::Wrong;
use crate::values::value::Written;
use forebay_site::rules::{RequestVariable, Template, TemplatePart};
use forebay_upstream::settings::SignInPart;

/// The address for users whom a server of `forward_auth` does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInAddress(Template);

impl SignInAddress {
    /// The path, if the page is on the same site and its address always the same.
    pub(crate) fn path(&self) -> Option<&str> {
        let path = self.0.as_str().split(['?', '#']).next()?;
        (path.starts_with('/') && !path.contains('$')).then_some(path)
    }

    /// The address's parts in order.
    pub(crate) fn parts(&self) -> Vec<SignInPart> {
        self.0.parts().iter().filter_map(part).collect()
    }
}

/// A part that an address may have.
fn part(part: &TemplatePart) -> Option<SignInPart> {
    match part {
        TemplatePart::Text(text) => Some(SignInPart::Text(text.clone())),
        TemplatePart::Path => Some(SignInPart::Path),
        TemplatePart::Query => Some(SignInPart::Query),
        TemplatePart::Host => Some(SignInPart::Host),
        TemplatePart::Of(RequestVariable::Scheme) => Some(SignInPart::Scheme),
        TemplatePart::Of(_) | TemplatePart::Capture(_) => None,
    }
}

impl Written for SignInAddress {
    const EXPECTED: &'static str = "an address such as \"/oauth2/sign_in?rd=$path$query\"";

    fn read(text: &str) -> Result<SignInAddress, Wrong> {
        let unfit = |reason: String| Wrong::Unfit { found: format!("{text:?}"), reason };
        let template = Template::parse(text).map_err(|error| unfit(error.to_string()))?;
        if template.parts().iter().any(|one| part(one).is_none()) {
            return Err(unfit("it may name $scheme, $host, $path and $query".to_owned()));
        }
        let is_path = text.starts_with('/') && !text.starts_with("//");
        let begins = ["https://", "http://", "$scheme://"];
        let is_address = is_path || begins.iter().any(|begin| text.starts_with(begin));
        let is_plain =
            text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte));
        match is_address && is_plain {
            true => Ok(SignInAddress(template)),
            false => Err(SignInAddress::misread(text)),
        }
    }

    fn text(&self) -> String {
        self.0.as_str().to_owned()
    }
}
