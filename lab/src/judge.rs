//! Verdicts from rows: each claim of a figure, for every subject it is about, over rounds.
//!
//! Everything here is pure: rows go in, verdicts come out. A claim is true, false or void in a round
//! ([`claim`], [`void`]); over rounds it holds, holds in part, or does not ([`verdict`]).
//!
//! | module | what it holds |
//! |---|---|
//! | [`select`] | the rows that are meant, and the subjects of a claim |
//! | [`claim`] | a claim in one round |
//! | [`shape`] | curves along an axis |
//! | [`void`] | the reasons for which rows do not count |
//! | [`verdict`] | over rounds: a claim, every subject it is about, the figure |

pub mod claim;
pub mod select;
pub mod shape;
pub mod verdict;
pub mod void;

/// The verdict on a figure, on a subject in it, or on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PaperVerdict {
    /// The claim is true.
    Holds,
    /// Some of the claim is true, or it is true in some rounds.
    InPart,
    /// The claim is not true today.
    DoesNotHold,
    /// The paper does not say enough to judge the claim.
    CannotBeJudged,
    /// The effect that was to be shown did not happen.
    Void,
    /// There are too few rounds.
    NotYet,
    /// The part that would be measured is not built.
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

    /// The verdict's text in reports.
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

/// The subject of a claim, such as a server in a form: words by their keys; none if the claim names
/// all words itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimSubject(pub Vec<(String, String)>);

impl ClaimSubject {
    /// The words, as reports show them.
    pub fn text(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(_, word)| word.as_str()).collect();
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        if words.is_empty() { "all".to_owned() } else { words.join(" ") }
    }

    /// The word of a key, if the subject has one.
    pub fn word(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, word)| word.as_str())
    }
}

/// The finding on a claim in one round.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimFinding {
    /// The claim is true, by this number.
    True(f64),
    /// The claim is false, by this number.
    False(f64),
    /// The round does not count, for this reason.
    Void(String),
    /// Rows that the claim needs are missing.
    Missing,
}

/// A claim in a round.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundOfClaim {
    /// The folder of the round.
    pub run: String,
    /// The round's number in that folder.
    pub number: u32,
    /// The machine it ran on.
    pub machine: String,
    /// Whether something else ran meanwhile.
    pub is_noisy: bool,
    /// The finding.
    pub finding: ClaimFinding,
}

/// A claim about a subject, over rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedClaim {
    /// The claim's name.
    pub id: String,
    /// The reason why the claim is true, or is not, as the file has it.
    pub why: String,
    /// The subject.
    pub subject: ClaimSubject,
    /// The condition.
    pub goal: String,
    /// The verdict.
    pub verdict: PaperVerdict,
    /// The grounds of the verdict, in a sentence.
    pub sentence: String,
    /// The rounds, oldest first.
    pub rounds: Vec<RoundOfClaim>,
}

/// All claims about a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedSubject {
    /// The subject.
    pub subject: ClaimSubject,
    /// The verdict.
    pub verdict: PaperVerdict,
    /// The reason why the verdict is not better; empty if all holds.
    pub sentence: String,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedFigure {
    /// The figure's name, such as `voigt-f12`.
    pub id: String,
    /// The verdict.
    pub verdict: PaperVerdict,
    /// The grounds of the verdict, in a sentence.
    pub sentence: String,
    /// All subjects of the figure's claims.
    pub subjects: Vec<JudgedSubject>,
    /// Every claim about every subject.
    pub claims: Vec<JudgedClaim>,
}

/// The strictness of the judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgeMode {
    /// Judges over as many rounds as each claim wants.
    Whole,
    /// Judges over one round, and only those claims that the short form shows.
    Quick,
}

#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod recorded_tests;
