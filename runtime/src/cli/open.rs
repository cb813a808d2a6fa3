//! `lifeformd open`: the web page in a browser, signed in.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use super::client::Client;
use super::{say, say_error};
use crate::config::Config;

/// The programs that open a file, by preference, with their first argument.
const OPENERS: [(&str, &[&str]); 4] = [("xdg-open", &[]), ("open", &[]), ("wslview", &[]), ("gio", &["open"])];
/// The file in the data folder that leads a browser to the page. Arguments of programs can be read by all users of a machine, and the
/// token must not be among them.
const LEADS: &str = "open.html";

pub(super) fn run(config: &Config, print: bool) -> anyhow::Result<ExitCode> {
    let client = Client::new(config)?;
    // A fragment is not sent to the server, and the page takes it out of the address at once.
    let link = format!("{}/ui/#token={}", client.base, client.token);
    if print {
        say(&link);
        return Ok(ExitCode::SUCCESS);
    }
    let file = config.data.join(LEADS);
    let written = || -> std::io::Result<()> {
        let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file)?;
        let quoted = link.replace('&', "&amp;").replace('"', "&quot;");
        writeln!(out, "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={quoted}\"><title>lifeformd</title>")
    };
    written().with_context(|| format!("{} cannot be written", file.display()))?;
    let opened = OPENERS.iter().any(|(program, first)| {
        let mut command = Command::new(program);
        let run = command.args(*first).arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        run.status().is_ok_and(|status| status.success())
    });
    match opened {
        true => Ok(ExitCode::SUCCESS),
        false => {
            say_error("no browser can be opened here: lifeformd open --print prints the link, which holds the token");
            Ok(ExitCode::FAILURE)
        }
    }
}
