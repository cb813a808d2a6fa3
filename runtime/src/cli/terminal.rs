//! The terminal of a chat: an editor for lines, above which answers are printed while a person writes.

use std::io::IsTerminal;

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use rustyline::{DefaultEditor, ExternalPrinter};
use tokio::io::{AsyncBufReadExt, BufReader, Stdin};
use tokio::sync::mpsc;

use super::{harmless, say, say_piece};

/// The prompt.
const PROMPT: &str = "> ";

/// The lines that a person writes.
pub(super) enum Lines {
    /// Standard input as it comes.
    Piped(tokio::io::Lines<BufReader<Stdin>>),
    /// The lines of the editor.
    Edited(mpsc::Receiver<String>),
}

/// The place where answers are printed.
pub(super) enum Output {
    /// Standard output.
    Plain,
    /// The lines above the editor, and the beginning of the next one.
    Above(Box<dyn ExternalPrinter + Send>, String),
}

/// The settings of a terminal, which are set again when this is dropped: the editor may wait for a key when the command ends.
pub(super) struct Restored(Option<Termios>);

impl Drop for Restored {
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            // A terminal that is gone has no settings.
            let _ = tcsetattr(std::io::stdin(), SetArg::TCSAFLUSH, settings);
        }
    }
}

/// Opens the lines and the output: with an editor, whose history begins with `history`, if both ends are a terminal.
///
/// # Errors
/// An error of the terminal.
pub(super) fn open(history: &[String]) -> anyhow::Result<(Lines, Output, Restored)> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Ok((Lines::Piped(BufReader::new(tokio::io::stdin()).lines()), Output::Plain, Restored(None)));
    }
    let before = Restored(tcgetattr(std::io::stdin()).ok());
    let mut editor = DefaultEditor::new()?;
    for line in history {
        editor.add_history_entry(line.as_str())?;
    }
    let printer = editor.create_external_printer()?;
    let (lines, received) = mpsc::channel(1);
    std::thread::Builder::new().name("line editor".into()).spawn(move || {
        while let Ok(line) = editor.readline(PROMPT) {
            // A history that is full or has the line already keeps it no second time.
            let _ = editor.add_history_entry(line.as_str());
            if lines.blocking_send(line).is_err() {
                break;
            }
        }
    })?;
    Ok((Lines::Edited(received), Output::Above(Box::new(printer), String::new()), before))
}

impl Lines {
    /// Returns the next line; `None` at the end.
    ///
    /// # Errors
    /// An error of standard input.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<String>> {
        match self {
            Self::Piped(lines) => Ok(lines.next_line().await?),
            Self::Edited(lines) => Ok(lines.recv().await),
        }
    }
}

impl Output {
    /// Prints a piece of a line. Above an editor, it is printed with the rest of its line.
    pub(super) fn piece(&mut self, text: &str) {
        let text = &*harmless(text);
        match self {
            Self::Plain => say_piece(text),
            Self::Above(printer, line) => {
                line.push_str(text);
                if let Some(end) = line.rfind('\n') {
                    let rest = line.split_off(end + 1);
                    // A terminal that is gone shows nothing.
                    let _ = printer.print(std::mem::replace(line, rest));
                }
            }
        }
    }

    /// Prints a line; the rest of the one before ends.
    pub(super) fn line(&mut self, text: &str) {
        match self {
            Self::Plain => say(&harmless(text)),
            Self::Above(..) => self.piece(&format!("{text}\n")),
        }
    }
}
