//! Answers that the kernel gives: learned answers become maps of the gate, and records of given answers
//! are read.

use super::KernelGate;
use crate::kernel_answers::{AnswerKeeper, AnswerKey, GivenAnswer};
use forebay_gate::{
    AnswerCount, AnswerName, AnswerRecords, KernelAnswer, KernelVariant, SentVariant,
};
use forebay_site::FixedAnswer;
use std::io;
use std::time::Duration;

impl AnswerKeeper for KernelGate {
    fn keep(&self, key: &AnswerKey, answer: &FixedAnswer, requests: u32) -> Result<u32, String> {
        // codings are compared by the order of the forms
        let variants = answer.forms.iter().zip(0..).map(|(form, place)| KernelVariant {
            coding: form.coding,
            compared_bytes: place,
            sent: form.bytes.as_ref().map(|bytes| SentVariant {
                lines: &bytes.head,
                not_modified: &bytes.not_modified,
                etag: &bytes.tag,
                body: &bytes.body,
            }),
        });
        let variants: Vec<_> = variants.collect();
        let answer = KernelAnswer { requests, timeout_s: 0, variants: &variants };
        self.0.learn(&name(key), &answer).map_err(|error| error.to_string())
    }

    fn let_go(&self, key: &AnswerKey) {
        self.0.forget(&name(key));
    }

    fn let_all_go(&self) {
        self.0.forget_all();
    }
}

fn name(key: &AnswerKey) -> AnswerName<'_> {
    AnswerName { listener: key.listener, host: &key.host, path: &key.path }
}

/// The records of the answers that the kernel has given.
#[derive(Debug)]
pub struct GivenAnswers(AnswerRecords);

impl GivenAnswers {
    /// Calls `each` with all records there are; returns how many. The call does not wait.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn read(&mut self, mut each: impl FnMut(&GivenAnswer<'_>)) -> io::Result<usize> {
        self.0.read(|record| {
            each(&GivenAnswer {
                number: record.answer,
                client: record.client,
                local: record.local,
                at_ns: record.at_ns,
                head: record.head,
                status: record.status,
                body_bytes: record.body_bytes.into(),
                sent_bytes: record.sent_bytes.into(),
            });
        })
    }
}

impl KernelGate {
    /// Whether the gate gives answers.
    pub fn answers_requests(&self) -> bool {
        self.0.answers_requests()
    }

    /// Requests that the gate might answer, by outcome.
    pub(super) fn served(&self) -> Vec<(&'static str, u64)> {
        self.outcomes(&[
            ("ok", AnswerCount::Ok),
            ("not_modified", AnswerCount::NotModified),
            ("left_head", AnswerCount::LeftHead),
            ("left_unknown", AnswerCount::LeftUnknown),
            ("left_void", AnswerCount::LeftVoid),
            ("left_variant", AnswerCount::LeftVariant),
            ("left_room", AnswerCount::LeftRoom),
            ("left_records", AnswerCount::LeftRecords),
        ])
    }

    /// Segments behind an answer, by outcome.
    pub(super) fn behind_served(&self) -> Vec<(&'static str, u64)> {
        self.outcomes(&[
            ("answered_again", AnswerCount::Repeated),
            ("acknowledged", AnswerCount::Acked),
            ("silent", AnswerCount::Held),
            ("ended", AnswerCount::Ended),
            ("reset", AnswerCount::Cut),
            ("early", AnswerCount::Early),
            ("adopted", AnswerCount::Adopted),
            ("lost", AnswerCount::Lost),
        ])
    }

    fn outcomes(&self, names: &[(&'static str, AnswerCount)]) -> Vec<(&'static str, u64)> {
        let counts = self.0.answer_counts();
        let of = |(name, count): &(&'static str, AnswerCount)| (*name, counts[*count as usize]);
        names.iter().filter(|_| self.answers_requests()).map(of).collect()
    }

    /// Sets the time, in seconds since 1970, and allows answers for this long from now on.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn renew_answers(&self, unix_s: u64, lasts: Duration) -> Result<(), String> {
        self.0.renew(unix_s, lasts).map_err(|error| error.to_string())
    }

    /// The records of given answers, for one reader.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn given_answers(&self) -> Result<GivenAnswers, String> {
        self.0.records().map(GivenAnswers).map_err(|error| error.to_string())
    }
}
