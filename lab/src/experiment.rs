//! An experiment: measurement, place, servers, and the claims of a paper. A file of
//! `lab/experiments`.
//!
//! A file is one sweep with the figures that are made of its rows. This module holds the contents
//! of a file; [`round`](crate::round) measures and [`judge`](mod@crate::judge) judges.
//!
//! | module | what it holds |
//! |---|---|
//! | [`read`] | reading a file, with its errors and their lines |
//! | `keys` | the tables of a file, with the keys that each may have |
//! | [`check`] | conditions on a file as a whole, and on all of them |
//! | [`sheet`] | every table and figure of the papers |

pub mod check;
mod keys;
pub mod read;
pub mod sheet;

use std::time::Duration;

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// The name of the file without its ending.
    pub name: String,
    /// A title for people.
    pub title: String,
    /// The question that it answers, in a sentence.
    pub question: String,
    /// The round in which it has its turn.
    pub set: ExperimentSet,
    /// Rows of another edition are shown, and not judged.
    pub edition: u32,
    /// The time that it takes in a round on two cores, in minutes.
    pub minutes: f64,
    /// The experiment's needs.
    pub needs: Vec<ExperimentNeed>,
    /// The number of times it is measured in a round.
    pub repeats: u32,
    /// The axes that are varied: with a program, each combination of the words is one run of it.
    pub sweep: Vec<SweepAxis>,
    /// Combinations that are left out.
    pub skip: Vec<RowSelector>,
    /// The measurement.
    pub task: ExperimentTask,
    /// The rules by which rows do not count.
    pub voids: Vec<VoidRule>,
    /// The figures that are made of the rows.
    pub figures: Vec<PaperFigure>,
    /// The short form, which shows the shape only; `None` if there is none.
    pub quick: Option<QuickForm>,
    /// Further remarks for readers.
    pub note: String,
}

/// Experiments that have their turns in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentSet {
    /// Tables and figures of the papers.
    Papers,
    /// Forebay beside other servers of today.
    Peers,
    /// Programs that have the server inside.
    Library,
}

impl ExperimentSet {
    /// All of them.
    pub const ALL: [ExperimentSet; 3] =
        [ExperimentSet::Papers, ExperimentSet::Peers, ExperimentSet::Library];
}

/// A need of an experiment for something of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimentNeed {
    /// To be root: networks, memory, quotas.
    Root,
    /// Forebay built with the feature `gate`.
    Gate,
    /// A program, by its name.
    Program(String),
}

/// An axis that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepAxis {
    /// The axis's name: a column of the rows, and a word.
    pub name: String,
    /// The axis's values, in order.
    pub values: Vec<String>,
}

/// A selection of rows: those whose words are these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowSelector(pub Vec<SelectedWord>);

/// A column, and the words that are meant. A claim has to hold for each of several words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedWord {
    /// The column.
    pub key: String,
    /// The words.
    pub words: Vec<String>,
}

/// The measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum ExperimentTask {
    /// A command that prints rows.
    Program(ProgramTask),
    /// A load: servers are started, clients connect, and both are measured.
    Load(Box<LoadTask>),
}

/// A command that prints rows as CSV with a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramTask {
    /// Program and arguments, with words in them.
    pub command: Vec<String>,
    /// The arguments of cargo besides `build --release --locked`; empty if there is nothing to
    /// build.
    pub build: Vec<String>,
    /// The columns that are words. The first names the subject.
    pub keys: Vec<String>,
    /// The columns that are numbers, and are judged or shown; the command may print more.
    pub measures: Vec<String>,
}

/// Servers, and the clients that connect to each at each point.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadTask {
    /// The place.
    pub place: PlaceText,
    /// The servers that take turns.
    pub cast: Cast,
    /// Groups by which the capacity of each server is measured at the start of a run: a name, and a
    /// group that comes alone.
    pub capacities: Vec<GroupText>,
    /// The groups of clients.
    pub groups: Vec<GroupText>,
    /// Files that are served: their names and sizes in bytes.
    pub content: Vec<(String, u64)>,
    /// The number of connections of SPECweb99's set of files, if that is served, too.
    pub fileset: Option<u32>,
    /// The figures that are recorded at each point.
    pub measures: Vec<String>,
    /// The time for which clients come before anything counts.
    pub warmup: Duration,
    /// The time that counts.
    pub measured: Duration,
}

/// A group of clients: a name, and the settings of `forebay load`, with words in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupText {
    /// The group's name.
    pub name: String,
    /// Key and value of each setting.
    pub settings: Vec<(String, String)>,
}

/// The place of servers and clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaceText {
    /// `loopback`; `own`: loopback in a network of its own; `pair`: two networks with a cable between them.
    pub network: String,
    /// `cores = "one"`: servers and clients share one; `send_buffer = "4KiB"`: the send buffer of
    /// sockets in an `own` network or at the servers' end of a `pair`.
    pub settings: Vec<(String, String)>,
    /// The server's share of its core.
    pub cpu: Option<CpuShare>,
    /// The memory limit of a server and the page cache of its files, in bytes. The set of files is
    /// read once before clients come.
    pub memory_bytes: Option<u64>,
    /// The rate of a `pair`'s cable towards the clients, as `tc` writes rates: `10mbit`.
    pub line: String,
}

/// The part of a core that one of the servers needs for a number of answers per second; all servers
/// get as much.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuShare {
    /// Answers per second, at the last point of the sweep.
    pub per_s: f64,
    /// The server, by its name in `lab/servers.toml`.
    pub server: String,
}

/// The servers that take turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cast {
    /// Forebay's forms of `lab/servers.toml`.
    pub ours: Vec<String>,
    /// The forms, that is the ways in which each of ours is set up.
    pub forms: Vec<String>,
    /// Other servers.
    pub peers: Vec<String>,
    /// Lines that stay in the files of all.
    pub tags: Vec<String>,
    /// Words for the files of all.
    pub words: Vec<(String, String)>,
    /// Lines of ours for all, and for capacities, too: the files and handlers that are asked for.
    pub base: String,
    /// The policy of ours, with words.
    pub lines: String,
}

/// A rule by which rows do not count where a figure is not within bounds, as the effect that was to
/// be shown did not happen.
#[derive(Clone, Debug, PartialEq)]
pub struct VoidRule {
    /// The effect that did not happen, as a sentence.
    pub what: String,
    /// The rows that have to show it.
    pub of: RowSelector,
    /// The figure.
    pub figure: String,
    /// The bounds within which the figure is when all is well.
    pub bounds: ClaimBounds,
    /// Whether no rows of the round count then; else only those of the same server and form do not.
    pub whole_round: bool,
}

/// A table or a figure of a paper, or one of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperFigure {
    /// The figure's name, such as `voigt-f12`.
    pub id: String,
    /// A title for people.
    pub title: String,
    /// The rows that it is made of.
    pub at: RowSelector,
    /// The way in which it is shown.
    pub view: FigureView,
    /// The numbers of the paper.
    pub paper: PaperNumbers,
    /// Remarks for readers.
    pub note: String,
    /// The claims.
    pub claims: Vec<Claim>,
    /// Parts that are not built, and why: a form, or the whole figure (an empty name).
    pub absent: Vec<(String, String)>,
}

/// The way in which a figure is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FigureView {
    /// A line for each combination of keys.
    Plot(PlotView),
    /// A table with these figures.
    Table(Vec<String>),
}

/// A plot of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlotView {
    /// The column along x: an axis of the sweep, or a key whose words are numbers.
    pub x: String,
    /// The figure along y.
    pub y: String,
    /// The keys by which rows are put into lines.
    pub series: Vec<String>,
    /// The rows that it is made of, besides the figure's condition.
    pub at: RowSelector,
    /// The title of x, if not its name.
    pub x_title: String,
    /// The title of y, if not its name.
    pub y_title: String,
    /// Whether x is logarithmic.
    pub log_x: bool,
    /// Whether y is logarithmic.
    pub log_y: bool,
}

/// A paper's own numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PaperNumbers {
    /// Lines of a plot.
    pub series: Vec<PaperSeries>,
    /// Rows of a table.
    pub rows: Vec<PaperRow>,
}

/// A line of a paper's plot.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperSeries {
    /// The line's name.
    pub name: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// A row of a paper's table.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperRow {
    /// The row's name.
    pub name: String,
    /// A number for each figure of the table; none where the paper has none.
    pub values: Vec<Option<f64>>,
}

/// A claim about a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The claim, in a few words.
    pub id: String,
    /// The rows that it is about, besides the figure's condition.
    pub of: RowSelector,
    /// The figure.
    pub figure: String,
    /// The condition.
    pub kind: ClaimKind,
    /// The number of rounds that have to count before there is a verdict.
    pub rounds: u32,
    /// Whether the interval of the median decides, and not the number of rounds in which the claim
    /// is true.
    pub interval: bool,
    /// Whether the short form judges it.
    pub quick: bool,
    /// The reason why the claim is true, or is not.
    pub why: String,
}

/// A condition on a figure in a round.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimKind {
    /// The figure lies within bounds.
    Value(ClaimBounds),
    /// The figure divided by another lies within bounds.
    Ratio {
        /// The divisor.
        to: RatioTo,
        /// The bounds.
        bounds: ClaimBounds,
    },
    /// Figures of these rows fall in this order.
    Order {
        /// The rows, the largest figure first.
        order: Vec<RowSelector>,
        /// The share of the next one that may be missing: 0.02 is two percent.
        slack: f64,
    },
    /// The figure has a shape along an axis.
    Along {
        /// The axis.
        over: String,
        /// The shape.
        shape: CurveShape,
        /// The same as with `Order`.
        slack: f64,
    },
    /// The paper does not say enough to judge the claim, for this reason.
    CannotBeJudged(String),
}

/// The divisor of a figure, in the same round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RatioTo {
    /// The rows that have these words in the place of their own, and this figure; an empty name is
    /// the same figure.
    Rows {
        /// The words.
        words: RowSelector,
        /// The other figure, or an empty name.
        figure: String,
    },
    /// The peer with the largest median. Peers are all servers that are not Forebay.
    Best,
}

/// Bounds; one that is missing does not bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimBounds {
    /// The lower bound.
    pub min: Option<ClaimBound>,
    /// The upper bound.
    pub max: Option<ClaimBound>,
}

/// A number, or a multiple of a column of the row.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimBound {
    /// The number.
    pub number: f64,
    /// The column it is multiplied by; empty if by none.
    pub of: String,
}

/// A shape along an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum CurveShape {
    /// Each point is no less than the one before.
    Rises,
    /// Each point is no more than the one before.
    Falls,
    /// All points are the same within slack, least to most.
    Flat,
    /// The curve falls after its highest point by this share of it: 0.2 is a fifth.
    Peaks(f64),
    /// The curve begins above that of these rows, and ends below it.
    Crosses(RowSelector),
    /// The slope of the straight line through the points lies between these.
    Slope(f64, f64),
    /// A straight line explains this share of the variance.
    Straight(f64),
}

/// The short form of an experiment, which shows the shape only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuickForm {
    /// The time that it takes, in minutes.
    pub minutes: f64,
    /// Another command of a program.
    pub command: Vec<String>,
    /// Fewer servers.
    pub servers: Vec<String>,
    /// Fewer points.
    pub sweep: Vec<SweepAxis>,
    /// A shorter warm-up.
    pub warmup: Option<Duration>,
    /// A shorter measurement.
    pub measured: Option<Duration>,
}

impl PlaceText {
    /// A setting; empty if it is not given.
    pub fn setting(&self, key: &str) -> &str {
        self.settings.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value)
    }
}

impl RowSelector {
    /// The words of a key, if the selector names it.
    pub fn words(&self, key: &str) -> Option<&[String]> {
        let found = self.0.iter().find(|word| word.key == key);
        found.map(|word| word.words.as_slice())
    }
}

impl Experiment {
    /// The columns of its rows that are words; the first names the subject.
    pub fn keys(&self) -> Vec<&str> {
        let axes = self.sweep.iter().map(|axis| axis.name.as_str());
        match &self.task {
            ExperimentTask::Program(program) => {
                let own = program.keys.iter().map(String::as_str);
                own.chain(axes.filter(|axis| !program.keys.iter().any(|key| key == axis))).collect()
            }
            ExperimentTask::Load(_) => {
                ["server", "form"].into_iter().chain(axes).chain(["group"]).collect()
            }
        }
    }

    /// One of the experiment's figures.
    pub fn figure(&self, id: &str) -> Option<&PaperFigure> {
        self.figures.iter().find(|figure| figure.id == id)
    }
}
