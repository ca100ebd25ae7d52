//! The warnings of `forebay check` with `engine = "isolated"`: settings that no stage uses.
#![forbid(unsafe_code)]

use crate::config_files::Folder;

const IDLE: &str = "means nothing with stages:";

#[test]
fn what_receive_does_not_know_is_remarked() {
    let folder = Folder::new();
    let text = "root = \"site\"\nuser = \"nobody\"\nengine = \"isolated\"\n\
                [log]\nformat = \"json\"\nfields = [\"time\", \"user\", \"upstream_us\"]\n\
                [[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n";
    let expected = format!(
        "DIR/forebay.toml:6:10: log.fields: {IDLE} receive writes the log, and does not know user and upstream"
    );
    assert_eq!(folder.remarks(text), [expected]);
    assert!(folder.remarks(&text.replace("isolated", "event")).is_empty());
    let fine = "root = \"site\"\nuser = \"nobody\"\nengine = \"isolated\"\nlog.format = \"json\"\n\
                log.fields = [\"time\", \"status\"]\n[[class]]\nname = \"all\"\npriority = 0\n";
    assert!(folder.remarks(fine).is_empty());
}

#[test]
fn a_sign_in_that_no_stage_can_keep_is_remarked() {
    let folder = Folder::new();
    let remarks = |engine: &str, key: &str| {
        folder.remarks(&format!(
            "root = \"site\"\nuser = \"nobody\"\nengine = \"{engine}\"\n[[proxy]]\npath = \"/app\"\n\
             to = \"http://10.0.0.1:9\"\n{key}\n"
        ))
    };
    let expected = format!(
        "DIR/forebay.toml:7:19: proxy.connection_auth: {IDLE} stages share their connections, so it is as with \
         \"refuse\""
    );
    assert_eq!(remarks("isolated", "connection_auth = \"bind\""), [expected]);
    assert_eq!(remarks("event", "connection_auth = \"bind\""), [""; 0]);
    for key in ["", "connection_auth = \"refuse\"", "connection_auth = \"request\""] {
        assert_eq!(remarks("isolated", key), [""; 0], "{key}");
    }
}

#[test]
fn what_other_software_has_to_do_is_remarked() {
    let folder = Folder::new();
    let text = "root = \"site\"\nengine = \"isolated\"\nlisting = true\ncache.file_bytes = \"32KiB\"\n\
                isolated.cpu_weight = { receive = 200, respond = 50 }\n\
                [[rewrite]]\npath = \"/old\"\nto = \"/new\"\n\
                [[header]]\npath = \"/*\"\nset = { X = \"y\" }\n\
                [[access]]\npath = \"/closed\"\ndeny = [\"all\"]\n";
    let remarks = |text: &str| -> Vec<String> {
        // rules for paths that do not exist have remarks of their own
        folder.remarks(text).into_iter().filter(|remark| remark.contains(IDLE)).collect()
    };
    assert!(remarks(text).is_empty());
    let others =
        text.replace("[[rewrite]]", "isolated.respond_at = [\"http://10.0.0.1:80\"]\n[[rewrite]]");
    let theirs = "where other software answers, this is its to do";
    let expected = [
        format!("DIR/forebay.toml:3:11: listing: {IDLE} {theirs}"),
        format!("DIR/forebay.toml:4:20: cache.file_bytes: {IDLE} {theirs}"),
        format!(
            "DIR/forebay.toml:5:50: isolated.cpu_weight.respond: {IDLE} this stage is other software, \
             which is not started here"
        ),
        format!("DIR/forebay.toml:7:1: rewrite: {IDLE} {theirs}"),
        format!("DIR/forebay.toml:10:1: header: {IDLE} {theirs}"),
    ];
    assert_eq!(remarks(&others), expected);
}

#[test]
fn what_only_stages_do_is_remarked_without_them() {
    let folder = Folder::new();
    let text = "root = \"site\"\nrepeat_idempotent = true\nsandbox.seccomp = \"off\"\n\
                isolated.tasks_max = { process = 64 }\n";
    let needs = "means nothing without engine = \"isolated\" or [stages]";
    let expected = [
        format!("DIR/forebay.toml:2:21: repeat_idempotent: {needs}"),
        format!("DIR/forebay.toml:3:19: sandbox.seccomp: {needs}"),
        format!("DIR/forebay.toml:4:22: isolated.tasks_max: {needs}"),
    ];
    assert_eq!(folder.remarks(text), expected);
    assert!(
        folder.remarks(&format!("engine = \"isolated\"\nuser = \"nobody\"\n{text}")).is_empty()
    );
}
