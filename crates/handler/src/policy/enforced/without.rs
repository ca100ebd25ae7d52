//! The gate without the feature `gate`: none exists, so that nothing here is ever reached.

use super::{HandedKernel, OfClasses, ProtectedServer};
use crate::kernel_answers::{AnswerKeeper, AnswerKey, GivenAnswer};
use forebay_config::{GateCharge, GateRules};
use forebay_metrics::GateFigures;
use forebay_policy::rule::Degree;
use forebay_policy::{GivenWord, Policy};
use forebay_site::FixedAnswer;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Whether this program has the gate.
pub fn is_built() -> bool {
    false
}

/// Whether this kernel can make connections from cookies that are not its own; unknown here, and so
/// `false`.
pub fn makes_connections() -> bool {
    false
}

/// Does not run: no server starts a guard without the gate.
///
/// # Errors
/// Always.
pub fn guard() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The programs in the kernel, of which there are none.
#[derive(Debug)]
pub enum KernelGate {}

/// Rules as the kernel has them.
#[derive(Debug, Default)]
pub struct KernelTables(());

impl KernelTables {
    pub(super) fn slot(&self, _rule: u32) -> Option<u32> {
        None
    }

    pub(super) fn charge(&self) -> bool {
        false
    }

    pub(super) fn charge_requests(&self) -> bool {
        false
    }

    pub(super) fn rule_of_requests(&self, _slot: u32) -> Option<u32> {
        None
    }
}

impl KernelGate {
    /// Opens no gate.
    ///
    /// # Errors
    /// Always.
    pub fn open(
        _charge: GateCharge,
        _steers: bool,
        _rules: GateRules,
        _answers: bool,
        _before: Option<(HandedKernel, Vec<OwnedFd>)>,
    ) -> Result<KernelGate, String> {
        Err("this program was built without it (the Cargo feature gate)".to_owned())
    }

    /// Loads nothing.
    ///
    /// # Errors
    /// Always.
    pub fn try_load(steers: bool) -> Result<&'static str, String> {
        KernelGate::open(GateCharge::default(), steers, GateRules::default(), false, None)
            .map(|gate| gate.rung())
    }

    /// The gate's text and descriptors, for the process that takes the place of this one.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self) -> io::Result<(HandedKernel, Vec<OwnedFd>)> {
        match *self {}
    }

    /// A descriptor that another process must hold, besides those handed over, so that the kernel judges
    /// on when this process has ended.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn programs(&self) -> io::Result<OwnedFd> {
        match *self {}
    }

    /// Does all of [`attach`](KernelGate::attach) but the last step: the gate before judges on.
    ///
    /// # Errors
    /// The obstacle.
    pub fn prepare(&self, _listeners: &[SocketAddr]) -> Result<(), String> {
        match *self {}
    }

    /// Takes judging back that another process was about to take over.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn retake(&self) -> Result<(), String> {
        match *self {}
    }

    /// Whether the gate judges anywhere.
    pub fn is_attached(&self) -> bool {
        match *self {}
    }

    /// Ends the judging of the gate before, everywhere, even if this one has no listeners.
    pub fn settle(&self) {
        match *self {}
    }

    /// Leaves the gate to another process, which judges from now on.
    pub fn let_go(&self) {
        match *self {}
    }

    /// Ends all judging.
    pub fn detach(&self) {
        match *self {}
    }

    /// Whether the gate queues connections by class, and so answers SYNs.
    pub fn steers(&self) -> bool {
        match *self {}
    }

    /// Whether the gate judges first requests.
    pub fn judges_requests(&self) -> bool {
        match *self {}
    }

    /// The gate's name, as the setting has it.
    pub fn rung(&self) -> &'static str {
        match *self {}
    }

    /// The gate's tasks, in words.
    pub fn does(&self) -> &'static str {
        match *self {}
    }

    pub(super) fn lower(&self, _policy: &Policy) -> Result<KernelTables, String> {
        match *self {}
    }

    pub(super) fn word(&self, _rule: &str, _of: GivenWord) -> Option<&'static AtomicU64> {
        match *self {}
    }

    pub(super) fn take_charged_request(
        &self,
        _client: SocketAddr,
        _local: SocketAddr,
    ) -> Option<u32> {
        match *self {}
    }

    pub(super) fn enforce(&self, _tables: &KernelTables) -> Result<(), String> {
        match *self {}
    }

    pub(super) fn set_degree(&self, _degree: Degree) {
        match *self {}
    }

    /// Protects other servers.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn protect(&self, _servers: &[ProtectedServer]) -> Result<(), String> {
        match *self {}
    }

    /// Has SYNs to these addresses judged.
    ///
    /// # Errors
    /// The address at which that is not possible, and why.
    pub fn attach(&self, _listeners: &[SocketAddr]) -> Result<(), String> {
        match *self {}
    }

    /// Has connections queued in the sockets of their classes, if the gate steers.
    ///
    /// # Errors
    /// The address at which that is not possible, and why.
    pub fn place(&self, _of_classes: Vec<OfClasses<'_>>) -> Result<(), String> {
        match *self {}
    }

    pub(super) fn take_charged(&self, _client: SocketAddr, _local: SocketAddr, _slot: u32) -> bool {
        match *self {}
    }

    pub(super) fn ignore(&self, _client: IpAddr, _until_ns: u64) {
        match *self {}
    }

    pub(super) fn paced(&self, _class: &str) -> (u64, u64) {
        match *self {}
    }

    pub(super) fn refused_by(&self, _rule: &str) -> u64 {
        match *self {}
    }

    pub(super) fn first_requests(&self, _ranks: usize) -> Vec<u64> {
        match *self {}
    }

    pub(super) fn figures(&self, _ranks: usize) -> GateFigures {
        match *self {}
    }
}

impl AnswerKeeper for KernelGate {
    fn keep(&self, _: &AnswerKey, _: &FixedAnswer, _: u32) -> Result<u32, String> {
        match *self {}
    }

    fn let_go(&self, _: &AnswerKey) {
        match *self {}
    }

    fn let_all_go(&self) {
        match *self {}
    }
}

/// The records of the answers that the kernel has given; without a gate there are none.
#[derive(Debug)]
pub enum GivenAnswers {}

impl GivenAnswers {
    /// Reads no records.
    ///
    /// # Errors
    /// Never.
    pub fn read(&mut self, _: impl FnMut(&GivenAnswer<'_>)) -> io::Result<usize> {
        match *self {}
    }
}

impl KernelGate {
    /// Whether the gate gives answers.
    pub fn answers_requests(&self) -> bool {
        match *self {}
    }

    /// Sets the time, and allows answers for this long from now on.
    ///
    /// # Errors
    /// Never.
    pub fn renew_answers(&self, _unix_s: u64, _lasts: Duration) -> Result<(), String> {
        match *self {}
    }

    /// The records of given answers.
    ///
    /// # Errors
    /// Never.
    pub fn given_answers(&self) -> Result<GivenAnswers, String> {
        match *self {}
    }
}
