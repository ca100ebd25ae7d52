//! What rows come to: each claim of a figure, for everybody of whom it is made, over rounds.
//!
//! Everything here is pure: rows go in, verdicts come out. A claim is true, false or void in a round
//! ([`claim`], [`void`]); over rounds it holds, holds in part, or does not ([`verdict`]).
//!
//! | module | what it holds |
//! |---|---|
//! | [`select`] | which rows are meant, and of whom a claim is made |
//! | [`claim`] | a claim in one round |
//! | [`shape`] | curves along an axis |
//! | [`void`] | where rows do not count |
//! | [`verdict`] | over rounds: a claim, everybody of whom it is made, the figure |

pub mod claim;
pub mod select;
pub mod shape;
pub mod verdict;
pub mod void;

/// What became of a figure, of somebody in it, or of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PaperVerdict {
    /// What is claimed is so.
    Holds,
    /// Some of it is, or it is in some rounds.
    InPart,
    /// It is not so, today.
    DoesNotHold,
    /// The paper does not let it be judged.
    CannotBeJudged,
    /// What was to be shown did not happen.
    Void,
    /// There are too few rounds.
    NotYet,
    /// What is measured is not built.
    NotBuilt,
}

impl PaperVerdict {
    /// All of them, in the order of reports.
    pub const ALL: [PaperVerdict; 7] = [
        PaperVerdict::Holds,
        PaperVerdict::InPart,
        PaperVerdict::DoesNotHold,
        PaperVerdict::CannotBeJudged,
        PaperVerdict::Void,
        PaperVerdict::NotYet,
        PaperVerdict::NotBuilt,
    ];

    /// As reports have it.
    pub fn text(self) -> &'static str {
        match self {
            PaperVerdict::Holds => "holds",
            PaperVerdict::InPart => "holds in part",
            PaperVerdict::DoesNotHold => "does not hold today",
            PaperVerdict::CannotBeJudged => "cannot be judged",
            PaperVerdict::Void => "void",
            PaperVerdict::NotYet => "not yet",
            PaperVerdict::NotBuilt => "not built",
        }
    }
}

/// Of whom a claim is made: words by their keys; none if the claim names all of them itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimSubject(pub Vec<(String, String)>);

impl ClaimSubject {
    /// For people: the words.
    pub fn text(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(_, word)| word.as_str()).collect();
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        if words.is_empty() { "all".to_owned() } else { words.join(" ") }
    }

    /// The word of a key, if it has one.
    pub fn word(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, word)| word.as_str())
    }
}

/// What a claim was in one round.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimFinding {
    /// It is so, by this number.
    True(f64),
    /// It is not, by this number.
    False(f64),
    /// The round does not count, for this reason.
    Void(String),
    /// Rows that it needs are not there.
    Missing,
}

/// A claim in a round.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundOfClaim {
    /// The folder of the round.
    pub run: String,
    /// Which of the rounds in that folder.
    pub number: u32,
    /// What it ran on.
    pub machine: String,
    /// Whether something else ran meanwhile.
    pub is_noisy: bool,
    /// What came of it.
    pub finding: ClaimFinding,
}

/// A claim about somebody, over rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedClaim {
    /// The claim's name.
    pub id: String,
    /// Why it is so, or is not, as the file has it.
    pub why: String,
    /// About whom.
    pub subject: ClaimSubject,
    /// What has to be so.
    pub goal: String,
    /// The verdict.
    pub verdict: PaperVerdict,
    /// What it rests on.
    pub sentence: String,
    /// The rounds, oldest first.
    pub rounds: Vec<RoundOfClaim>,
}

/// All claims about somebody.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedSubject {
    /// About whom.
    pub subject: ClaimSubject,
    /// The verdict.
    pub verdict: PaperVerdict,
    /// Why it is not better; empty if it holds.
    pub sentence: String,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedFigure {
    /// Such as `voigt-f12`.
    pub id: String,
    /// The verdict.
    pub verdict: PaperVerdict,
    /// What it rests on.
    pub sentence: String,
    /// Everybody of whom something is claimed.
    pub subjects: Vec<JudgedSubject>,
    /// Every claim about everybody.
    pub claims: Vec<JudgedClaim>,
}

/// How strict the judge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgeMode {
    /// Over as many rounds as each claim wants.
    Whole,
    /// Over one, and only those claims that the short form shows.
    Quick,
}

#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod recorded_tests;
