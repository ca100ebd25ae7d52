//! Rules that give classes to first requests into tables, as far as [`forebay_policy::first`] can tell
//! them.

use super::Lists;
use crate::GateError;
use crate::types::{
    ASKED, ASKED_MORE, Asked, DEGREE_SHIFT, MARK_BY_REQUEST, MARK_DEGREE, MARK_MORE, MARK_STOP,
    MARK_WAITS, Pattern, UNJUDGED, UrlRule,
};
use forebay_policy::first::{Alternatives, SegmentConditions};
use forebay_policy::rule::{Over, Rule};
use forebay_policy::{JudgePhase, Policy};

/// Patterns of all rules together: 168 bytes each.
const MOST_PATTERNS: usize = 1 << 16;

/// For first requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct UrlTables {
    pub(crate) lists: Lists,
    pub(crate) rules: Vec<UrlRule>,
    pub(crate) patterns: Vec<Pattern>,
    /// How many classes there are, if rules give any: else nothing is to be told apart.
    pub(crate) ranks: usize,
}

pub(super) fn lower(policy: &Policy) -> Result<UrlTables, GateError> {
    let mut tables = UrlTables::default();
    let is_classed = policy.classes().len() > 1;
    if !is_classed || policy.rules().iter().all(|rule| rule.class.is_none()) {
        return Ok(tables);
    }
    tables.ranks = policy.classes().len();
    for (rule, rank) in policy.rules().iter().zip(policy.ranks()) {
        let rule = tables.rule(rule, *rank, policy.default_rank())?;
        tables.rules.push(rule);
    }
    let last = tables.rules.len() as u32;
    tables.rules.push(UrlRule { rank: policy.default_rank().into(), ..UrlRule::default() });
    let counts = |_, rule: &Rule| rule.class.is_some() || rule.stop;
    tables.lists = Lists::with_last(policy, counts, last)?;
    Ok(tables)
}

impl UrlTables {
    fn rule(&mut self, rule: &Rule, rank: u8, default: u8) -> Result<UrlRule, GateError> {
        if rule.class.is_none() && !rule.stop {
            return Ok(UrlRule { rank: UNJUDGED, ..UrlRule::default() });
        }
        let SegmentConditions { methods, paths, hosts, needs_more } = SegmentConditions::of(rule);
        let mark = |is: bool, mark| if is { mark } else { 0 };
        // behind a rule that stops and has no class, the default one is left, if none came before
        let (rank, by_request) = match rule.class {
            Some(_) => (rank, !rule.is_for_connections()),
            None => (default, false),
        };
        let degree = u32::from(rule.when.from(JudgePhase::Request).number());
        Ok(UrlRule {
            method: self.asked(methods)?,
            path: self.asked(paths)?,
            host: self.asked(hosts)?,
            rank: rank.into(),
            marks: mark(rule.stop, u32::from(MARK_STOP))
                | mark(needs_more, MARK_MORE)
                | mark(by_request, MARK_BY_REQUEST)
                | mark(waits(rule), MARK_WAITS)
                | degree << DEGREE_SHIFT & u32::from(MARK_DEGREE),
        })
    }

    fn asked(&mut self, alternatives: Option<Alternatives>) -> Result<Asked, GateError> {
        let Some(Alternatives { texts, needs_more }) = alternatives else {
            return Ok(Asked::default());
        };
        let first = self.patterns.len() as u32;
        self.patterns.extend(texts.iter().map(|(text, is_prefix)| pattern(text, *is_prefix)));
        let count = u16::try_from(texts.len()).map_err(|_| GateError::TooMany)?;
        if self.patterns.len() > MOST_PATTERNS {
            return Err(GateError::TooMany);
        }
        Ok(Asked { first, count, marks: ASKED | if needs_more { ASKED_MORE } else { 0 } })
    }
}

/// Whether what finds the queue of the rule's class full is to come again: what is over the rule's limit is
/// to be silent, or to wait.
fn waits(rule: &Rule) -> bool {
    let limit = rule.requests.as_ref().or(rule.connections.as_ref());
    limit.is_some_and(|limit| matches!(limit.over, Over::Drop | Over::Queue { .. }))
}

fn pattern(text: &[u8], is_prefix: bool) -> Pattern {
    let mut pattern = Pattern {
        length: text.len() as u32,
        is_prefix: u32::from(is_prefix),
        ..Pattern::default()
    };
    for (word, bytes) in pattern.words.iter_mut().zip(text.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    pattern
}
