//! An experiment: what is measured, where, on whom, and what a paper claims of it. A file of `lab/experiments`.
//!
//! A file is one sweep with the figures that are made of its rows. This module holds what a file says; who
//! measures it and who judges it is elsewhere.
//!
//! | module | what it holds |
//! |---|---|
//! | [`read`] | a file, read; what is wrong with it, and in which line |
//! | `keys` | the tables of a file, with the keys that each may have |
//! | [`check`] | what has to be true of a file as a whole, and of all of them |
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
    /// What it asks, in a sentence.
    pub question: String,
    /// In which round it has its turn.
    pub set: ExperimentSet,
    /// Rows of another edition are shown, and not judged.
    pub edition: u32,
    /// What it takes in a round on two cores.
    pub minutes: f64,
    /// What the machine has to have.
    pub needs: Vec<ExperimentNeed>,
    /// How often it is measured in a round.
    pub repeats: u32,
    /// What is varied: with a program, each combination of the words is one run of it.
    pub sweep: Vec<SweepAxis>,
    /// Combinations that are left out.
    pub skip: Vec<RowSelector>,
    /// What is done.
    pub task: ExperimentTask,
    /// Where rows do not count.
    pub voids: Vec<VoidRule>,
    /// What is made of the rows.
    pub figures: Vec<PaperFigure>,
    /// How it is done when the shape is enough; `None` if it has no such form.
    pub quick: Option<QuickForm>,
    /// What a reader has to know besides.
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

/// What an experiment needs of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimentNeed {
    /// To be root: networks, memory, quotas.
    Root,
    /// Forebay built with the feature `gate`.
    Gate,
    /// A program, by its name.
    Program(String),
}

/// What is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepAxis {
    /// Its name: a column of the rows, and a word.
    pub name: String,
    /// Its values, in order.
    pub values: Vec<String>,
}

/// Some rows: those whose words are these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowSelector(pub Vec<SelectedWord>);

/// A column, and the words that are meant. Of several, what is claimed has to hold for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedWord {
    /// The column.
    pub key: String,
    /// The words.
    pub words: Vec<String>,
}

/// What is done.
#[derive(Clone, Debug, PartialEq)]
pub enum ExperimentTask {
    /// A command that prints rows.
    Program(ProgramTask),
    /// Servers are started, clients come, and both are looked at.
    Load(Box<LoadTask>),
}

/// A command that prints rows as CSV with a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramTask {
    /// Program and arguments, with words in them.
    pub command: Vec<String>,
    /// What cargo is told besides `build --release --locked`; empty if there is nothing to build.
    pub build: Vec<String>,
    /// The columns that are words. The first is who is measured.
    pub keys: Vec<String>,
    /// The columns that are numbers, and are judged or shown; it may print more.
    pub measures: Vec<String>,
}

/// Servers, and the clients that come to each at each point.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadTask {
    /// Where.
    pub place: PlaceText,
    /// Who takes turns.
    pub cast: Cast,
    /// Measured of each server at the start of a run: a name, and a group that comes alone.
    pub capacities: Vec<GroupText>,
    /// The groups of clients.
    pub groups: Vec<GroupText>,
    /// Files that are served: their names, and so many bytes.
    pub content: Vec<(String, u64)>,
    /// SPECweb99's set of files for so many connections is served, too.
    pub fileset: Option<u32>,
    /// What is written down of each point.
    pub measures: Vec<String>,
    /// How long clients come before it counts.
    pub warmup: Duration,
    /// How long it counts.
    pub measured: Duration,
}

/// A group of clients: a name, and the settings of `forebay load`, with words in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupText {
    /// Its name.
    pub name: String,
    /// Key and value of each setting.
    pub settings: Vec<(String, String)>,
}

/// Where servers and clients are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaceText {
    /// `loopback`; `own`: loopback in a network of its own; `pair`: two networks with a cable between them.
    pub network: String,
    /// `cores = "one"`: servers and clients share one; `send_buffer = "4KiB"`: what a socket of an `own` network
    /// or of the servers' end of a `pair` holds to be sent.
    pub settings: Vec<(String, String)>,
    /// What a server gets of its core.
    pub cpu: Option<CpuShare>,
    /// What a server and the page cache of its files may hold, bytes. The set of files is read once before clients come.
    pub memory_bytes: Option<u64>,
    /// What the cable of a `pair` carries towards the clients, as `tc` writes rates: `10mbit`.
    pub line: String,
}

/// The part of a core that one of the servers needs for so many answers per second; all of them get it.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuShare {
    /// Answers per second, at the last point of the sweep.
    pub per_s: f64,
    /// The server, by its name in `lab/servers.toml`.
    pub server: String,
}

/// Who takes turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cast {
    /// Forebay's forms of `lab/servers.toml`.
    pub ours: Vec<String>,
    /// The ways in which each of ours is set up.
    pub forms: Vec<String>,
    /// Other servers.
    pub peers: Vec<String>,
    /// Lines that stay in the files of all.
    pub tags: Vec<String>,
    /// Words for the files of all.
    pub words: Vec<(String, String)>,
    /// Lines of ours for all, and for capacities, too: what is asked for.
    pub base: String,
    /// The policy of ours, with words.
    pub lines: String,
}

/// That rows do not count where a figure is not within bounds: what was to be shown did not happen.
#[derive(Clone, Debug, PartialEq)]
pub struct VoidRule {
    /// What did not happen, as a sentence.
    pub what: String,
    /// Which rows have to show it.
    pub of: RowSelector,
    /// The figure.
    pub figure: String,
    /// Within which it is when all is well.
    pub bounds: ClaimBounds,
    /// Whether nobody's rows of the round count then; else only those of the same server and form.
    pub whole_round: bool,
}

/// A table or a figure of a paper, or one of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperFigure {
    /// Such as `voigt-f12`.
    pub id: String,
    /// A title for people.
    pub title: String,
    /// Of which rows.
    pub at: RowSelector,
    /// How it is shown.
    pub view: FigureView,
    /// What the paper has.
    pub paper: PaperNumbers,
    /// What a reader has to know.
    pub note: String,
    /// What is claimed.
    pub claims: Vec<Claim>,
    /// What is not built, and why: a form, or the whole figure (an empty name).
    pub absent: Vec<(String, String)>,
}

/// How a figure is shown.
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
    /// Of which rows, besides those of the figure.
    pub at: RowSelector,
    /// What x is called, if not by its name.
    pub x_title: String,
    /// What y is called, if not by its name.
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
    /// Its name.
    pub name: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// A row of a paper's table.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperRow {
    /// Its name.
    pub name: String,
    /// A number for each figure of the table; none where the paper has none.
    pub values: Vec<Option<f64>>,
}

/// What is claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// In a few words.
    pub id: String,
    /// Of which rows, besides those of the figure.
    pub of: RowSelector,
    /// Which figure.
    pub figure: String,
    /// What is true of it.
    pub kind: ClaimKind,
    /// So many rounds have to count before there is a verdict.
    pub rounds: u32,
    /// Whether the interval of the median decides, and not how many rounds it is true in.
    pub interval: bool,
    /// Whether the short form judges it.
    pub quick: bool,
    /// Why it is so, or is not.
    pub why: String,
}

/// What is true of a figure in a round.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimKind {
    /// It lies within bounds.
    Value(ClaimBounds),
    /// Divided by another it lies within bounds.
    Ratio {
        /// What it is divided by.
        to: RatioTo,
        /// The bounds.
        bounds: ClaimBounds,
    },
    /// Figures of these rows fall in this order.
    Order {
        /// The rows, the largest figure first.
        order: Vec<RowSelector>,
        /// So much of the next one may be missing: 0.02 is two percent.
        slack: f64,
    },
    /// It has a shape along an axis.
    Along {
        /// The axis.
        over: String,
        /// The shape.
        shape: CurveShape,
        /// As with `Order`.
        slack: f64,
    },
    /// The paper does not let it be judged, for this reason.
    CannotBeJudged(String),
}

/// What a figure is divided by, in the same round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RatioTo {
    /// The rows that have these words in the place of their own, and this figure; an empty one is the same.
    Rows {
        /// The words.
        words: RowSelector,
        /// Another figure, if it is another.
        figure: String,
    },
    /// The peer with the largest median: all whose server is none of ours.
    Best,
}

/// Bounds; what is not said does not bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimBounds {
    /// No less than this.
    pub min: Option<ClaimBound>,
    /// No more than this.
    pub max: Option<ClaimBound>,
}

/// A number, or so many times a column of the row.
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
    /// Each is no less than the one before.
    Rises,
    /// Each is no more than the one before.
    Falls,
    /// All are the same within slack, least to most.
    Flat,
    /// It falls after its highest point by so much of it: 0.2 is a fifth.
    Peaks(f64),
    /// It begins above these rows, and ends below them.
    Crosses(RowSelector),
    /// The slope of the straight line through it lies between these.
    Slope(f64, f64),
    /// A straight line explains so much of it.
    Straight(f64),
}

/// How it is done when the shape is enough.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuickForm {
    /// What it takes.
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
    /// A setting; empty if it is not said.
    pub fn setting(&self, key: &str) -> &str {
        self.settings.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value)
    }
}

impl RowSelector {
    /// The words of a key, if it is named.
    pub fn words(&self, key: &str) -> Option<&[String]> {
        let found = self.0.iter().find(|word| word.key == key);
        found.map(|word| word.words.as_slice())
    }
}

impl Experiment {
    /// The columns of its rows that are words, the first of them who is measured.
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

    /// A figure of it.
    pub fn figure(&self, id: &str) -> Option<&PaperFigure> {
        self.figures.iter().find(|figure| figure.id == id)
    }
}
