//! `lifeformd open`: the web page in a browser, signed in.

use std::process::{Command, ExitCode, Stdio};

use super::client::Client;
use super::{say, say_error};
use crate::config::Config;

/// The programs that open a link, by preference.
const OPENERS: [&str; 4] = ["xdg-open", "open", "wslview", "gio"];

pub(super) fn run(config: &Config, print: bool) -> anyhow::Result<ExitCode> {
    let client = Client::new(config)?;
    // A fragment is not sent to the server, and the page takes it out of the address at once.
    let link = format!("{}/ui/#token={}", client.base, client.token);
    if print {
        say(&link);
        return Ok(ExitCode::SUCCESS);
    }
    let opened = OPENERS.iter().any(|program| {
        let mut command = Command::new(program);
        if *program == "gio" {
            command.arg("open");
        }
        let run = command.arg(&link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    });
    match opened {
        true => Ok(ExitCode::SUCCESS),
        false => {
            say_error("no browser can be opened here: lifeformd open --print prints the link, which holds the token");
            Ok(ExitCode::FAILURE)
        }
    }
}
