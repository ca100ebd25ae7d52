//! Remarks on settings that another one leaves without effect.

use crate::config_files::Folder;

#[test]
fn what_another_setting_leaves_without_effect_is_remarked() {
    let folder = Folder::new();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let idle = |place: &str, needs: &str| {
        format!("DIR/forebay.toml:{place}: means nothing without {needs}")
    };
    let exceeds = |place: &str, other: &str, effect: &str| {
        format!("DIR/forebay.toml:{place}: is more than {other}: {effect}")
    };
    let nothing: [&str; 0] = [];
    assert_eq!(remarks("group = \"root\""), [idle("2:9: group", "user")]);
    assert_eq!(remarks("user = \"root\"\ngroup = \"root\""), nothing);
    let forwarded = "forwarded = \"forwarded\"";
    assert_eq!(remarks(forwarded), [idle("2:13: forwarded", "trusted_proxies")]);
    assert_eq!(remarks(&format!("trusted_proxies = [\"::1\"]\n{forwarded}")), nothing);
    assert_eq!(
        remarks("admin.allow = [\"10.0.0.7\"]"),
        [idle("2:15: admin.allow", "admin.listen")]
    );
    assert_eq!(
        remarks("[limits]\nconnections = 10\nconnections_per_client = 11"),
        [exceeds(
            "4:26: limits.connections_per_client",
            "limits.connections",
            "no client reaches it"
        )]
    );
    for good in ["connections = 10\nconnections_per_client = 10", "connections_per_client = 100000"]
    {
        assert_eq!(remarks(&format!("[limits]\n{good}")), nothing);
    }
    let not_kept = "files of that size are not kept";
    for (bytes, file_bytes) in [("1MiB", "2MiB"), ("1MiB", "65KiB"), ("4MiB", "512KiB")] {
        let text = format!("cache.bytes = \"{bytes}\"\ncache.file_bytes = \"{file_bytes}\"");
        let expected = exceeds("3:20: cache.file_bytes", "a sixteenth of cache.bytes", not_kept);
        assert_eq!(remarks(&text), [expected]);
    }
    // the default of cache.file_bytes shrinks with cache.bytes, and without a data cache there is
    // no such bound
    for good in [
        "cache.bytes = \"1MiB\"\ncache.file_bytes = \"64KiB\"",
        "[cache]\nbytes = \"256KiB\"",
        "cache.file_bytes = \"512KiB\"",
        "cache.bytes = \"0B\"\ncache.file_bytes = \"1MiB\"",
        "cache.bytes = \"0B\"",
    ] {
        assert_eq!(remarks(good), nothing, "{good}");
    }
    assert_eq!(
        remarks("timeouts.idle = \"1s\"\nkeep_alive.floor = \"2s\""),
        [exceeds("3:20: keep_alive.floor", "timeouts.idle", "the time does not shrink under load")]
    );
    let constant =
        "timeouts.idle = \"1s\"\nkeep_alive.floor = \"2s\"\nkeep_alive.law = \"constant\"";
    assert_eq!(
        remarks(constant),
        [
            "DIR/forebay.toml:3:20: keep_alive.floor: means nothing without keep_alive.law = \"linear\" or \"exponential\""
        ]
    );
}

#[test]
fn a_route_of_the_top_level_that_each_site_has_is_remarked() {
    let folder = Folder::new();
    let to = "to = \"http://10.0.0.1\"";
    let top = format!("root = \"site\"\n[[proxy]]\npath = \"/app\"\n{to}\n");
    let site = |host: &str, path: &str| {
        format!("[[site]]\nhosts = [\"{host}\"]\n[[site.proxy]]\npath = \"{path}\"\n{to}\n")
    };
    let never = "DIR/forebay.toml:3:8: proxy.path: it is never asked: a route of the top level is for sites that \
                 have none for the same path, and each [[site]] has one";
    let both = format!("{top}{}{}", site("a.example", "/app"), site("b.example", "/app/"));
    assert_eq!(folder.remarks(&both), [never]);
    let one = format!("{top}{}{}", site("a.example", "/app"), site("b.example", "/app/b"));
    assert_eq!(folder.remarks(&one), [""; 0]);
    assert_eq!(folder.remarks(&top), [""; 0]);
}

#[test]
fn the_order_of_those_who_wait_for_a_thread_needs_threads_and_classes() {
    let folder = Folder::new();
    let classes =
        "[[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n";
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n{classes}"));
    let needs = "means nothing without engine = \"pool\" or \"threads\"";
    let expected = [
        format!("DIR/forebay.toml:2:13: answering: {needs}"),
        format!("DIR/forebay.toml:3:16: accept_ahead: {needs}"),
    ];
    assert_eq!(remarks("answering = 5\naccept_ahead = 9"), expected);
    let nothing: [&str; 0] = [];
    assert_eq!(remarks("answering = 5\naccept_ahead = 9\nengine = \"threads\""), nothing);
    let more =
        "DIR/forebay.toml:2:13: answering: is more than workers: no more than those may answer";
    assert_eq!(remarks("answering = 5\nworkers = 4\nengine = \"pool\""), [more]);
    assert_eq!(remarks("answering = 4\nworkers = 4\nengine = \"pool\""), nothing);
    // the number of threads that the server chooses counts, too
    let more = more.replace("2:13", "3:13");
    assert_eq!(remarks("engine = \"pool\"\nanswering = 65"), [&*more]);
    assert_eq!(remarks("engine = \"pool\"\nanswering = 64"), nothing);
    assert_eq!(remarks("engine = \"threads\"\nanswering = 65"), nothing);
    assert_eq!(remarks("engine = \"threads\"\nanswering = 1025"), [&*more]);
    // the limits on threads for applications have an effect without classes
    let alone = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let expected = [
        format!("DIR/forebay.toml:2:20: upstream_threads: {needs}"),
        format!("DIR/forebay.toml:3:18: tunnel_threads: {needs}"),
    ];
    let both = "upstream_threads = 5\ntunnel_threads = 2";
    assert_eq!(alone(both), expected);
    assert_eq!(alone(&format!("{both}\nengine = \"pool\"")), nothing);
    let pool = "[[listener]]\nlisten = [\"127.0.0.1:81\"]\nengine = \"pool\"";
    assert_eq!(remarks(&format!("answering = 5\n{pool}")), nothing);
    let event = "[[listener]]\nlisten = [\"127.0.0.1:82\"]\nanswering = 5";
    let expected = [format!("DIR/forebay.toml:7:13: listener.answering: {needs}")];
    assert_eq!(remarks(&format!("{pool}\n{event}")), expected);
    assert_eq!(
        folder.remarks("root = \"site\"\nengine = \"pool\"\nanswering = 5\n"),
        ["DIR/forebay.toml:3:13: answering: means nothing without two classes"]
    );
}

#[test]
fn a_law_of_a_class_without_effect_is_remarked() {
    let folder = Folder::new();
    let class = "[[class]]\nname = \"gold\"\npriority = 0\n";
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{class}{text}\n"));
    let needs = "means nothing without keep_alive.law = \"linear\" or \"exponential\"";
    let constant = "keep_alive = { law = \"constant\", threshold = 5, floor = \"2s\" }";
    let expected = [
        format!("DIR/forebay.toml:5:46: class.keep_alive.threshold: {needs}"),
        format!("DIR/forebay.toml:5:57: class.keep_alive.floor: {needs}"),
    ];
    assert_eq!(remarks(constant), expected);
    // a class inherits the settings it does not state
    let inherited = "keep_alive.floor = \"2s\"\n[keep_alive]\nlaw = \"constant\"";
    assert_eq!(
        remarks(inherited),
        [format!("DIR/forebay.toml:5:20: class.keep_alive.floor: {needs}")]
    );
    let above = remarks("keep_alive = { idle = \"1s\", floor = \"2s\" }");
    assert_eq!(above.len(), 1, "{above:?}");
    assert!(above[0].contains("class.keep_alive.floor") && above[0].contains("keep_alive.idle"));
    for good in ["keep_alive.floor = \"1s\"", "keep_alive = { idle = \"10m\", law = \"constant\" }"]
    {
        assert!(remarks(good).is_empty(), "{good}");
    }
}

#[test]
fn a_law_without_effect_is_remarked() {
    let folder = Folder::new();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let needs = "means nothing without keep_alive.law = \"linear\" or \"exponential\"";
    let constant = "[keep_alive]\nlaw = \"constant\"\nthreshold = 5\nfloor = \"2s\"\n";
    let threshold = format!("DIR/forebay.toml:4:13: keep_alive.threshold: {needs}");
    let floor = format!("DIR/forebay.toml:5:9: keep_alive.floor: {needs}");
    assert_eq!(remarks(constant), [&*threshold, &floor]);
    // a class with another law uses these settings, unless it states its own
    let class = "[[class]]\nname = \"gold\"\npriority = 0\nkeep_alive.law = \"linear\"\n";
    let nothing: [&str; 0] = [];
    assert_eq!(remarks(&format!("{constant}{class}")), nothing);
    let own = "keep_alive.floor = \"1s\"";
    assert_eq!(remarks(&format!("{constant}{class}{own}")), [&*floor]);
    assert_eq!(remarks("[keep_alive]\nlaw = \"constant\"\nannounce = true"), nothing);
}

#[test]
fn the_order_of_sends_needs_a_loop() {
    let folder = Folder::new();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    let wrong = "DIR/forebay.toml:2:14: send_order: means nothing without an engine with loops, such as \
                 \"event\"";
    let order = "send_order = \"shortest\"\nengine";
    assert_eq!(remarks(&format!("{order} = \"pool\"")), [wrong]);
    let never = "pipeline.fuse = \"never\"";
    assert_eq!(remarks(&format!("{order} = \"pipeline\"\n{never}")), [wrong]);
    let nothing: [&str; 0] = [];
    for engine in ["event", "fibers", "pipeline"] {
        assert_eq!(remarks(&format!("{order} = {engine:?}")), nothing, "{engine}");
    }
    let event = "[[listener]]\nlisten = [\"127.0.0.1:81\"]\nengine = \"event\"";
    assert_eq!(remarks(&format!("{order} = \"threads\"\n{event}")), nothing);
}

#[test]
fn settings_of_the_pipeline_need_it() {
    let folder = Folder::new();
    let text = "root = \"site\"\n[pipeline]\nfuse = \"never\"\nby = \"delay\"\n";
    let expected = [
        "DIR/forebay.toml:3:8: pipeline.fuse: means nothing without engine = \"pipeline\"",
        "DIR/forebay.toml:4:6: pipeline.by: means nothing without engine = \"pipeline\"",
    ];
    assert_eq!(folder.remarks(text), expected);
    assert!(folder.remarks(&format!("engine = \"pipeline\"\n{text}")).is_empty());
    let one = "[[listener]]\nlisten = [\":81\"]\nengine = \"pipeline\"\n";
    assert!(folder.remarks(&format!("listen = [\":80\"]\n{text}{one}")).is_empty());
    let fused = |key: &str, value: &str, more: &str| {
        folder.remarks(&format!(
            "root = \"site\"\nengine = \"pipeline\"\npipeline.{key} = {value}\n{more}\n"
        ))
    };
    for (key, value, needs) in [
        ("accept", "2", "pipeline.fuse = \"never\""),
        ("receive", "2", "pipeline.fuse = \"never\""),
        ("send_wait", "\"1s\"", "pipeline.fuse = \"never\""),
        ("delay", "\"5ms\"", "pipeline.by = \"delay\""),
    ] {
        let column = "pipeline. = ".len() + key.len() + 1;
        let wrong =
            format!("DIR/forebay.toml:3:{column}: pipeline.{key}: means nothing without {needs}");
        assert_eq!(fused(key, value, ""), [wrong]);
    }
    let law = "means nothing without pipeline.by = \"queue\" or \"delay\"";
    let wrong = format!("DIR/forebay.toml:3:21: pipeline.transfer: {law}");
    assert_eq!(fused("transfer", "4", "pipeline.by = \"fixed\""), [wrong]);
    assert!(fused("transfer", "4", "").is_empty());
    assert!(fused("accept", "2", "pipeline.fuse = \"never\"").is_empty());
    assert!(fused("delay", "\"5ms\"", "pipeline.by = \"delay\"").is_empty());
}

#[test]
fn settings_of_stages_need_them() {
    let folder = Folder::new();
    let text = "root = \"site\"\n[isolated]\nprocess = 3\n";
    assert_eq!(
        folder.remarks(text),
        [
            "DIR/forebay.toml:3:11: isolated.process: means nothing without engine = \"isolated\" or [stages]"
        ]
    );
    assert!(
        folder.remarks(&format!("engine = \"isolated\"\nuser = \"nobody\"\n{text}")).is_empty()
    );
}

#[test]
fn threads_that_slow_clients_hold_are_remarked() {
    let folder = Folder::new();
    let held = "as many clients as there are workers, who send or read slowly, keep all others \
        waiting; before strangers use event, fibers or pipeline";
    let of = |engine: &str, listen: &str| {
        folder.remarks(&format!("root = \"site\"\nlisten = [{listen}]\nengine = \"{engine}\"\n"))
    };
    let expected = [format!("DIR/forebay.toml:3:10: engine: {held}")];
    for engine in ["pool", "threads"] {
        assert_eq!(of(engine, "\":80\""), expected);
        assert_eq!(of(engine, "\"127.0.0.1:80\", \"192.0.2.1:80\""), expected);
        assert!(of(engine, "\"127.0.0.1:80\", \"[::1]:80\", \"unix:/run/a.sock\"").is_empty());
    }
    assert!(of("event", "\":80\"").is_empty());
    let stays = |fuse: &str, ms: u32| {
        folder.remarks(&format!(
            "root = \"site\"\nengine = \"pipeline\"\npipeline.fuse = \"{fuse}\"\n\
             pipeline.send_wait = \"{ms}ms\"\n"
        ))
    };
    let expected = "DIR/forebay.toml:4:22: pipeline.send_wait: each client that takes nothing holds a \
        thread of send for so long; as many as pipeline.threads allows keep all others waiting";
    assert_eq!(stays("never", 101), [expected]);
    assert!(stays("never", 100).is_empty());
}

#[test]
fn a_size_for_what_is_not_compressed_is_remarked() {
    let folder = Folder::new();
    let said = |place: &str| {
        format!("DIR/forebay.toml:{place}compress_bytes: means nothing without compress")
    };
    let (size, none) = ("compress_bytes = \"1MiB\"\n", "compress = []\n");
    let nothing: [&str; 0] = [];
    assert_eq!(folder.remarks(&format!("root = \"site\"\n{none}{size}")), [said("3:18: ")]);
    assert_eq!(folder.remarks(&format!("root = \"site\"\n{none}")), nothing);
    let sites = |a: &str, b: &str| {
        format!("[[site]]\nhosts = [\"a.example\"]\n{a}[[site]]\nhosts = [\"b.example\"]\n{b}")
    };
    let top = format!("root = \"site\"\n{size}");
    assert_eq!(folder.remarks(&format!("{top}{}", sites(none, none))), [said("2:18: ")]);
    assert_eq!(folder.remarks(&format!("{top}{}", sites(none, ""))), nothing);
    let own = format!("root = \"site\"\n{none}{}", sites(size, ""));
    assert_eq!(folder.remarks(&own), [said("5:18: site.")]);
    let own =
        format!("root = \"site\"\n{none}{}", sites(&format!("{size}compress = [\"gzip\"]\n"), ""));
    assert_eq!(folder.remarks(&own), nothing);
}
