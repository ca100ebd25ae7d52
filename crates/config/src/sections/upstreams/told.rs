//! Values of `set`, which applications get. Some of them name variables of the request.

use forebay_site::rules::{RequestVariable, Template, TemplateError, TemplatePart};
use forebay_upstream::request::SetValue;

/// The template of a value with variables: all variables but the upstream that answers, which is not known
/// yet.
///
/// # Errors
/// [`TemplateError`] for a variable that does not exist.
pub(crate) fn template(value: &str) -> Result<Option<Template>, TemplateError> {
    let upstream = TemplatePart::Of(RequestVariable::Upstream);
    Template::of_field(value, |part| *part != upstream)
}

/// Whether a value has variables.
pub(crate) fn has_variables(value: &str) -> bool {
    template(value).is_ok_and(|template| template.is_some())
}

/// The values that have variables, in their order. A fault in one was reported when it was read.
pub(crate) fn templates<'v>(values: impl Iterator<Item = &'v str>) -> Vec<Template> {
    values.filter_map(|value| template(value).ok().flatten()).collect()
}

/// The values of `set`, with numbers in the place of [`templates`].
pub(crate) fn set_values<N: Clone, V: AsRef<str> + Clone>(set: &[(N, V)]) -> Vec<(N, SetValue<V>)> {
    let mut numbers = 0..;
    let set = set.iter().map(|(name, value)| {
        let number = has_variables(value.as_ref()).then(|| numbers.next()).flatten();
        let value = number.map_or_else(|| SetValue::Fixed(value.clone()), SetValue::OfRequest);
        (name.clone(), value)
    });
    set.collect()
}
