//! Reading a file, with its errors and their lines.

use super::keys::{KnownKeys, WrongAt};
use super::{
    Cast, Claim, ClaimBound, ClaimBounds, ClaimKind, CpuShare, CurveShape, Experiment,
    ExperimentNeed, ExperimentSet, ExperimentTask, FigureView, GroupText, LoadTask, PaperFigure,
    PaperNumbers, PaperRow, PaperSeries, PlaceText, PlotView, ProgramTask, QuickForm, RatioTo,
    RowSelector, SelectedWord, SweepAxis, VoidRule,
};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml_edit::{Document, Item};

/// The reason why a file is no experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentProblem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1 on.
    pub line: usize,
    /// The error, and what is allowed.
    pub what: String,
}

impl fmt::Display for ExperimentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

impl std::error::Error for ExperimentProblem {}

/// The number of rounds that have to count before there is a verdict, unless the claim gives one.
pub const ROUNDS: u32 = 5;

/// Reads a file.
///
/// # Errors
/// The first error.
pub fn read(file: &Path) -> Result<Experiment, ExperimentProblem> {
    let problem =
        |line: usize, what: String| ExperimentProblem { file: file.to_owned(), line, what };
    let text = std::fs::read_to_string(file).map_err(|error| problem(1, error.to_string()))?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    parse(&name, &text).map_err(|(line, what)| problem(line, what))
}

/// Reads the text of a file by this name.
///
/// # Errors
/// The line, from 1 on, and the error there.
pub fn parse(name: &str, text: &str) -> Result<Experiment, (usize, String)> {
    let of_byte = |(byte, what): WrongAt| {
        (text.bytes().take(byte).filter(|byte| *byte == b'\n').count() + 1, what)
    };
    let document = Document::parse(text).map_err(|error| {
        of_byte((error.span().map_or(0, |span| span.start), error.message().to_owned()))
    })?;
    experiment(name, document.as_item()).map_err(of_byte)
}

const KEYS: &[&str] = &[
    "title", "question", "set", "edition", "kind", "minutes", "needs", "repeats", "note", "sweep",
    "skip", "void", "quick", "figure", "measures",
];
/// The keys of kind `program`.
const OF_PROGRAM: &[&str] = &["command", "build", "keys"];
/// The keys of kind `load`.
const OF_LOAD: &[&str] = &["load", "group", "capacity", "content", "fileset", "place", "servers"];

fn experiment(name: &str, item: &Item) -> Result<Experiment, WrongAt> {
    let table = item.as_table_like().ok_or((0, "expected a table".to_owned()))?;
    let kind = table.get("kind").and_then(Item::as_str).unwrap_or_default();
    let own = match kind {
        "load" => OF_LOAD,
        "program" => OF_PROGRAM,
        _ => {
            let at = table.get("kind").map_or(0, |item| super::keys::place(item, 0));
            return Err((at, "kind: expected load or program".to_owned()));
        }
    };
    let keys = KnownKeys::new(table, 0, "an experiment", &[KEYS, own].concat())?;
    let set = match keys.needed("set")?.as_str() {
        "papers" => ExperimentSet::Papers,
        "peers" => ExperimentSet::Peers,
        "library" => ExperimentSet::Library,
        _ => return Err((keys.at("set"), "set: expected papers, peers or library".to_owned())),
    };
    let need = |text: &String| match text.as_str() {
        "root" => ExperimentNeed::Root,
        "gate" => ExperimentNeed::Gate,
        program => ExperimentNeed::Program(program.to_owned()),
    };
    let minutes = keys.number("minutes")?.filter(|minutes| *minutes > 0.0);
    let figures =
        keys.tables("figure", "a figure", FIGURE)?.iter().map(figure).collect::<Result<_, _>>()?;
    Ok(Experiment {
        name: name.to_owned(),
        title: keys.needed("title")?,
        question: keys.needed("question")?,
        set,
        edition: keys.count("edition", 1)?,
        minutes: minutes
            .ok_or_else(|| (keys.at("minutes"), "minutes: expected a number".to_owned()))?,
        needs: keys.texts("needs")?.iter().map(need).collect(),
        repeats: keys.count("repeats", 1)?,
        sweep: sweep(&keys)?,
        skip: keys
            .tables("skip", "a selector", &[])?
            .iter()
            .map(words)
            .collect::<Result<_, _>>()?,
        task: match kind {
            "load" => ExperimentTask::Load(Box::new(load(&keys)?)),
            _ => ExperimentTask::Program(ProgramTask {
                command: list(&keys, "command")?,
                build: keys.texts("build")?,
                keys: list(&keys, "keys")?,
                measures: list(&keys, "measures")?,
            }),
        },
        voids: keys.tables("void", "a void", VOID)?.iter().map(void).collect::<Result<_, _>>()?,
        figures,
        quick: quick(&keys)?,
        note: keys.text("note")?,
    })
}

/// A list that must not be empty.
fn list(keys: &KnownKeys<'_>, key: &'static str) -> Result<Vec<String>, WrongAt> {
    match keys.texts(key)? {
        list if list.is_empty() => Err((keys.at(key), format!("{} needs {key}", keys.what))),
        list => Ok(list),
    }
}

fn sweep(keys: &KnownKeys<'_>) -> Result<Vec<SweepAxis>, WrongAt> {
    let Some(table) = keys.table("sweep", "a sweep", &[])? else { return Ok(Vec::new()) };
    Ok(table.all()?.into_iter().map(|(name, values)| SweepAxis { name, values }).collect())
}

fn words(keys: &KnownKeys<'_>) -> Result<RowSelector, WrongAt> {
    let words = keys.all()?.into_iter().map(|(key, words)| SelectedWord { key, words });
    Ok(RowSelector(words.collect()))
}

fn selector(keys: &KnownKeys<'_>, key: &str) -> Result<RowSelector, WrongAt> {
    keys.table(key, "a selector", &[])?.as_ref().map_or(Ok(RowSelector::default()), words)
}

const QUICK: &[&str] = &["minutes", "command", "servers", "sweep", "warmup", "measured"];

fn quick(keys: &KnownKeys<'_>) -> Result<Option<QuickForm>, WrongAt> {
    let Some(table) = keys.table("quick", "the short form", QUICK)? else { return Ok(None) };
    Ok(Some(QuickForm {
        minutes: table.number("minutes")?.unwrap_or(0.5),
        command: table.texts("command")?,
        servers: table.texts("servers")?,
        sweep: sweep(&table)?,
        warmup: table.time("warmup")?,
        measured: table.time("measured")?,
    }))
}

fn load(keys: &KnownKeys<'_>) -> Result<LoadTask, WrongAt> {
    let window = keys.table("load", "the load", &["warmup", "measured"])?;
    let time = |key: &str, seconds: u64| match &window {
        None => Ok(Duration::from_secs(seconds)),
        Some(window) => window.time(key).map(|time| time.unwrap_or(Duration::from_secs(seconds))),
    };
    let groups = keys.tables("group", "a group", &[])?;
    let capacities = keys.table("capacity", "capacities", &[])?;
    let mut found = Vec::new();
    if let Some(capacities) = capacities {
        for name in capacities.names() {
            let group = capacities.table(&name, "a capacity", &[])?;
            let settings = group.map_or(Ok(Vec::new()), |group| group.pairs())?;
            found.push(GroupText { name, settings });
        }
    }
    Ok(LoadTask {
        place: place(keys)?,
        cast: cast(keys)?,
        capacities: found,
        groups: groups.iter().map(group).collect::<Result<_, _>>()?,
        content: content(keys)?,
        fileset: fileset(keys)?,
        measures: list(keys, "measures")?,
        warmup: time("warmup", 1)?,
        measured: time("measured", 3)?,
    })
}

/// Reads `{ "8k.bin" = "8KiB" }`.
fn content(keys: &KnownKeys<'_>) -> Result<Vec<(String, u64)>, WrongAt> {
    let Some(files) = keys.table("content", "content", &[])? else { return Ok(Vec::new()) };
    let file = |(name, size): (String, String)| {
        let bytes = forebay_load::units::size(&size);
        let bytes =
            bytes.map_err(|expected| (files.at(&name), format!("{name}: expected {expected}")));
        Ok((name, bytes?))
    };
    files.pairs()?.into_iter().map(file).collect()
}

/// Reads `"specweb99:1000"`.
fn fileset(keys: &KnownKeys<'_>) -> Result<Option<u32>, WrongAt> {
    let text = keys.text("fileset")?;
    if text.is_empty() {
        return Ok(None);
    }
    let connections = text.strip_prefix("specweb99:").and_then(|number| number.parse().ok());
    let wrong = || (keys.at("fileset"), "fileset: expected specweb99:CONNECTIONS".to_owned());
    connections.map(Some).ok_or_else(wrong)
}

fn group(keys: &KnownKeys<'_>) -> Result<GroupText, WrongAt> {
    let mut settings = keys.pairs()?;
    let at = settings.iter().position(|(key, _)| key == "name");
    let at = at.ok_or((keys.at, "a group needs name".to_owned()))?;
    let (_, name) = settings.remove(at);
    Ok(GroupText { name, settings })
}

fn place(keys: &KnownKeys<'_>) -> Result<PlaceText, WrongAt> {
    let Some(place) = keys.table("place", "a place", PLACE)? else {
        return Ok(PlaceText { network: "loopback".to_owned(), ..PlaceText::default() });
    };
    let mut settings = place.pairs()?;
    settings.retain(|(key, _)| ["cores", "send_buffer"].contains(&key.as_str()));
    let network = match place.text("network")?.as_str() {
        "" => "loopback".to_owned(),
        network @ ("loopback" | "own" | "pair") => network.to_owned(),
        _ => return Err((place.at("network"), "network: expected loopback, own or pair".into())),
    };
    let line = place.text("line")?;
    if !line.is_empty() && network != "pair" {
        return Err((place.at("line"), "line: expected network = \"pair\"".into()));
    }
    let (cpu, memory_bytes) = (cpu(&place)?, memory(&place)?);
    let place_text = PlaceText { network, settings, cpu, memory_bytes, line };
    if !["", "apart", "one"].contains(&place_text.setting("cores")) {
        return Err((place.at("cores"), "cores: expected apart or one".into()));
    }
    let send_buffer = place_text.setting("send_buffer");
    if !send_buffer.is_empty() {
        let wrong =
            |expected| (place.at("send_buffer"), format!("send_buffer: expected {expected}"));
        if forebay_load::units::size(send_buffer).is_err() || place_text.network == "loopback" {
            return Err(wrong("a size such as 4KiB, and network = \"own\" or \"pair\""));
        }
    }
    Ok(place_text)
}

const PLACE: &[&str] = &["network", "cores", "send_buffer", "cpu", "memory", "line"];

/// Reads `"770/s of apache"`.
fn cpu(place: &KnownKeys<'_>) -> Result<Option<CpuShare>, WrongAt> {
    let text = place.text("cpu")?;
    if text.is_empty() {
        return Ok(None);
    }
    let found = text.split_once("/s of ").and_then(|(per_s, server)| {
        let per_s: f64 = per_s.parse().ok().filter(|per_s| *per_s > 0.0)?;
        Some(CpuShare { per_s, server: server.trim().to_owned() })
    });
    let wrong = || (place.at("cpu"), "cpu: expected a rate of a server: 770/s of apache".into());
    found.map(Some).ok_or_else(wrong)
}

fn memory(place: &KnownKeys<'_>) -> Result<Option<u64>, WrongAt> {
    let text = place.text("memory")?;
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |expected| (place.at("memory"), format!("memory: expected {expected}"));
    forebay_load::units::size(&text).map(Some).map_err(wrong)
}

const SERVERS: &[&str] = &["ours", "forms", "peers", "tags", "words", "base", "lines"];

fn cast(keys: &KnownKeys<'_>) -> Result<Cast, WrongAt> {
    let Some(cast) = keys.table("servers", "the servers", SERVERS)? else {
        return Err((keys.at, "an experiment needs [servers]".to_owned()));
    };
    let words = cast.table("words", "words", &[])?;
    Ok(Cast {
        ours: cast.texts("ours")?,
        forms: cast.texts("forms")?,
        peers: cast.texts("peers")?,
        tags: cast.texts("tags")?,
        words: words.map_or(Ok(Vec::new()), |words| words.pairs())?,
        base: cast.text("base")?,
        lines: cast.text("lines")?,
    })
}

const VOID: &[&str] = &["what", "of", "figure", "min", "max", "voids"];

fn void(keys: &KnownKeys<'_>) -> Result<VoidRule, WrongAt> {
    let whole_round = match keys.text("voids")?.as_str() {
        "" => false,
        "round" => true,
        _ => return Err((keys.at("voids"), "voids: expected round, or nothing".to_owned())),
    };
    Ok(VoidRule {
        what: keys.needed("what")?,
        of: selector(keys, "of")?,
        figure: keys.needed("figure")?,
        bounds: bounds(keys)?,
        whole_round,
    })
}

/// Reads at least one of `min` and `max`.
fn bounds(keys: &KnownKeys<'_>) -> Result<ClaimBounds, WrongAt> {
    let bounds = ClaimBounds { min: bound(keys, "min")?, max: bound(keys, "max")? };
    match bounds == ClaimBounds::default() {
        true => Err((keys.at, format!("{} needs min or max", keys.what))),
        false => Ok(bounds),
    }
}

/// Reads a number, or a text such as `0.9 @flood@`.
fn bound(keys: &KnownKeys<'_>, key: &str) -> Result<Option<ClaimBound>, WrongAt> {
    if let Ok(number) = keys.number(key) {
        return Ok(number.map(|number| ClaimBound { number, of: String::new() }));
    }
    let text = keys.text(key).unwrap_or_default();
    let found = text.split_once(' ').and_then(|(number, of)| {
        let of = of.trim().strip_prefix('@')?.strip_suffix('@')?.to_owned();
        Some(ClaimBound { number: number.parse().ok()?, of })
    });
    let wrong =
        || (keys.at(key), format!("{key}: expected a number, or one and a column: 0.9 @limit@"));
    found.map(Some).ok_or_else(wrong)
}

const FIGURE: &[&str] = &["id", "title", "at", "table", "plot", "paper", "note", "claim", "absent"];
const PLOT: &[&str] = &["x", "y", "series", "at", "x_title", "y_title", "log_x", "log_y"];

fn figure(keys: &KnownKeys<'_>) -> Result<PaperFigure, WrongAt> {
    let plot = keys.table("plot", "a plot", PLOT)?;
    let view = match (&plot, keys.texts("table")?) {
        (Some(plot), table) if table.is_empty() => FigureView::Plot(PlotView {
            x: plot.needed("x")?,
            y: plot.needed("y")?,
            series: plot.texts("series")?,
            at: selector(plot, "at")?,
            x_title: plot.text("x_title")?,
            y_title: plot.text("y_title")?,
            log_x: plot.flag("log_x")?,
            log_y: plot.flag("log_y")?,
        }),
        (None, table) if !table.is_empty() => FigureView::Table(table),
        _ => return Err((keys.at, "a figure needs either plot or table".to_owned())),
    };
    let claims = keys.tables("claim", "a claim", CLAIM)?;
    let absent = keys.table("absent", "what is absent", &[])?;
    Ok(PaperFigure {
        id: keys.needed("id")?,
        title: keys.needed("title")?,
        at: selector(keys, "at")?,
        view,
        paper: paper(keys)?,
        note: keys.text("note")?,
        claims: claims.iter().map(claim).collect::<Result<_, _>>()?,
        absent: absent.map_or(Ok(Vec::new()), |absent| absent.pairs())?,
    })
}

/// Reads `{ rows = [[name, number, …], …] }`, or a list of `{ name, points }`.
fn paper(keys: &KnownKeys<'_>) -> Result<PaperNumbers, WrongAt> {
    let mut paper = PaperNumbers::default();
    if let Ok(Some(table)) = keys.table("paper", "a paper's table", &["rows"]) {
        let rows = table.lists("rows")?.into_iter();
        paper.rows = rows.map(|(name, values)| PaperRow { name, values }).collect();
        return Ok(paper);
    }
    for line in keys.tables("paper", "a paper's line", &["name", "points"])? {
        let points = line.lists("points")?.into_iter().map(|(_, point)| match point[..] {
            [Some(x), Some(y)] => Ok((x, y)),
            _ => Err((line.at("points"), "points: expected [[x, y], …]".to_owned())),
        });
        let points = points.collect::<Result<_, _>>()?;
        paper.series.push(PaperSeries { name: line.needed("name")?, points });
    }
    Ok(paper)
}

const CLAIM: &[&str] = &[
    "id",
    "kind",
    "figure",
    "of",
    "to",
    "to_figure",
    "min",
    "max",
    "order",
    "slack",
    "over",
    "shape",
    "by",
    "slope",
    "r2",
    "rounds",
    "interval",
    "quick",
    "why",
    "cannot",
];

fn claim(keys: &KnownKeys<'_>) -> Result<Claim, WrongAt> {
    let kind = match keys.text("cannot")? {
        cannot if !cannot.is_empty() => ClaimKind::CannotBeJudged(cannot),
        _ => claim_kind(keys)?,
    };
    let figure = match kind {
        ClaimKind::CannotBeJudged(_) => keys.text("figure")?,
        _ => keys.needed("figure")?,
    };
    Ok(Claim {
        id: keys.needed("id")?,
        of: selector(keys, "of")?,
        figure,
        kind,
        rounds: keys.count("rounds", ROUNDS)?,
        interval: keys.flag("interval")?,
        quick: keys.flag("quick")?,
        why: keys.text("why")?,
    })
}

fn claim_kind(keys: &KnownKeys<'_>) -> Result<ClaimKind, WrongAt> {
    let slack = keys.number("slack")?.unwrap_or(0.0);
    let order = || -> Result<Vec<RowSelector>, WrongAt> {
        keys.tables("order", "a selector", &[])?.iter().map(words).collect()
    };
    match keys.text("kind")?.as_str() {
        "value" => Ok(ClaimKind::Value(bounds(keys)?)),
        "ratio" => Ok(ClaimKind::Ratio { to: ratio_to(keys)?, bounds: bounds(keys)? }),
        "order" => match order()? {
            order if order.len() < 2 => {
                Err((keys.at("order"), "order: expected a list of two selectors or more".into()))
            }
            order => Ok(ClaimKind::Order { order, slack }),
        },
        "along" => Ok(ClaimKind::Along { over: keys.needed("over")?, shape: shape(keys)?, slack }),
        _ => Err((
            keys.at("kind"),
            "kind: expected value, ratio, order or along; or cannot, with a reason".to_owned(),
        )),
    }
}

fn ratio_to(keys: &KnownKeys<'_>) -> Result<RatioTo, WrongAt> {
    if keys.text("to").is_ok_and(|to| to == "best") {
        return Ok(RatioTo::Best);
    }
    let to = RatioTo::Rows { words: selector(keys, "to")?, figure: keys.text("to_figure")? };
    match to == (RatioTo::Rows { words: RowSelector::default(), figure: String::new() }) {
        true => Err((keys.at, "a ratio needs to or to_figure".to_owned())),
        false => Ok(to),
    }
}

fn shape(keys: &KnownKeys<'_>) -> Result<CurveShape, WrongAt> {
    let [slope, r2] = [keys.numbers("slope")?, keys.number("r2")?.into_iter().collect()];
    match (keys.text("shape")?.as_str(), &slope[..], &r2[..]) {
        ("", &[least, most], _) => Ok(CurveShape::Slope(least, most)),
        ("", _, &[least]) => Ok(CurveShape::Straight(least)),
        ("rises", ..) => Ok(CurveShape::Rises),
        ("falls", ..) => Ok(CurveShape::Falls),
        ("flat", ..) => Ok(CurveShape::Flat),
        ("peaks", ..) => Ok(CurveShape::Peaks(keys.number("by")?.unwrap_or(0.0))),
        ("crosses", ..) => Ok(CurveShape::Crosses(selector(keys, "to")?)),
        _ => Err((
            keys.at("shape"),
            "shape: expected rises, falls, flat, peaks or crosses; or slope = [least, most], or r2"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::check;

    const GOOD: &str = r#"title = "A"
question = "Is it so?"
set = "papers"
kind = "program"
minutes = 1
command = ["true"]
keys = ["way"]
measures = ["ms"]
sweep = { load = ["1", "2"] }
[[figure]]
id = "emu-f4"
title = "Figure 4"
table = ["ms"]
claim = [{ id = "small", kind = "value", figure = "ms", of = { way = ["a", "b"], load = "2" }, max = "0.5 @load@" }]
"#;

    /// The first error of a text: its line, and its sentence.
    fn complaint(text: &str) -> Option<(usize, String)> {
        match parse("a", text) {
            Err(wrong) => Some(wrong),
            Ok(read) => {
                let first = check::check(&read, Path::new("a.toml"), text).into_iter().next();
                first.map(|problem| (problem.line, problem.what))
            }
        }
    }

    #[test]
    fn a_file_is_read() {
        let read = parse("a", GOOD).expect("an experiment");
        assert_eq!(read.keys(), ["way", "load"]);
        let claim = &read.figures[0].claims[0];
        assert_eq!((claim.rounds, claim.of.words("way").map(<[_]>::len)), (ROUNDS, Some(2)));
        let bound = ClaimBound { number: 0.5, of: "load".to_owned() };
        let bounds = ClaimBounds { min: None, max: Some(bound) };
        assert_eq!(claim.kind, ClaimKind::Value(bounds));
        assert_eq!(complaint(GOOD), None);
    }

    const LOAD: &str = r#"title = "A"
question = "Is it so?"
set = "peers"
kind = "load"
minutes = 1
measures = ["mean_ms"]
fileset = "specweb99:1000"
place = { network = "pair", line = "10mbit", cpu = "770/s of apache", memory = "2GiB" }
[servers]
ours = ["event"]
[[group]]
name = "clients"
[[figure]]
id = "a"
title = "A"
table = ["mean_ms"]
claim = [{ id = "soon", kind = "value", figure = "mean_ms", max = 1 }]
"#;

    #[test]
    fn a_place_bounds_what_servers_get() {
        let ExperimentTask::Load(task) = parse("a", LOAD).expect("an experiment").task else {
            unreachable!("its kind is load")
        };
        assert_eq!(task.fileset, Some(1000));
        let place = task.place;
        assert_eq!((place.line.as_str(), place.memory_bytes), ("10mbit", Some(2 << 30)));
        let share = CpuShare { per_s: 770.0, server: "apache".to_owned() };
        assert_eq!(place.cpu, Some(share));
        for (from, to, what) in [
            ("770/s of apache", "half", "cpu: expected a rate of a server: 770/s of apache"),
            ("770/s of apache", "0/s of apache", "cpu: expected a rate of a server"),
            ("2GiB", "some", "memory: expected a"),
            ("\"pair\"", "\"own\"", "line: expected network = \"pair\""),
            ("specweb99:1000", "webstone", "fileset: expected specweb99:CONNECTIONS"),
            ("cpu =", "quota =", "quota: a place has network, cores"),
        ] {
            let (line, said) = parse("a", &LOAD.replace(from, to)).expect_err(to);
            assert!(
                line == 7 + usize::from(!from.starts_with("spec")) && said.starts_with(what),
                "{to}: {line}: {said}"
            );
        }
    }

    #[test]
    fn what_is_wrong_has_its_line_and_what_is_allowed() {
        for (from, to, line, what) in [
            ("set = \"papers\"", "set = \"paper\"", 3, "set: expected papers, peers or library"),
            ("minutes = 1", "minuets = 1", 5, "minuets: an experiment has title, question"),
            ("kind = \"program\"", "kind = \"prog\"", 4, "kind: expected load or program"),
            ("max = \"0.5 @load@\"", "max = \"half\"", 14, "max: expected a number, or one and a"),
            ("kind = \"value\"", "kind = \"size\"", 14, "kind: expected value, ratio, order or"),
            ("max = \"0.5 @load@\"", "least = 1", 14, "least: a claim has id, kind, figure"),
            ("table = [\"ms\"]", "table = [\"µs\"]", 11, "µs: measures are ms"),
            ("id = \"emu-f4\"", "id = \"emu-f40\"", 11, "emu-f40: the papers have keta-t1"),
            ("load = \"2\"", "load = \"3\"", 14, "load: 3: the sweep has 1, 2"),
            ("way = [\"a\", \"b\"]", "wya = \"a\"", 14, "wya: rows have way, load"),
            ("title = \"A\"", "title = ", 1, ""),
            ("kind = \"value\"", "cannot = \"no\"", 14, "cannot: only figures of keta-t1"),
        ] {
            let text = GOOD.replace(from, to);
            let (found, said) = complaint(&text).expect(to);
            assert!(found == line && said.starts_with(what), "{to}: {found}: {said}");
        }
    }
}
