//! Text for terminals: tables, wrapped lines, durations, and text from other programs without control
//! characters.

use std::os::fd::AsFd;
use std::time::Duration;

/// Spaces between two columns.
const GAP: usize = 2;
/// The least width of a column that is shortened.
const LEAST: usize = 8;

/// The heading and the format of a column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    title: &'static str,
    words: bool,
    gives_way: bool,
}

impl Column {
    /// Aligned to the right.
    pub const fn number(title: &'static str) -> Self {
        Self { title, words: false, gives_way: false }
    }

    /// Aligned to the left.
    pub const fn words(title: &'static str) -> Self {
        Self { title, words: true, gives_way: false }
    }

    /// The same, and shortened if the terminal is too narrow.
    pub const fn names(title: &'static str) -> Self {
        Self { title, words: true, gives_way: true }
    }
}

#[derive(Debug, Clone)]
pub enum Line {
    /// One cell for each column.
    Row(Vec<String>),
    /// A remark on the row above.
    Remark(String),
}

/// The width of the terminal, if the output is one.
pub fn terminal_width(to: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(to).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Wraps a line at spaces to the width of the terminal. Continuation lines are indented like the text, after
/// a leading asterisk. Long words stay whole.
pub fn wrapped(line: &str, terminal: Option<usize>) -> String {
    let Some(terminal) = terminal else { return line.to_owned() };
    let indent = line.len() - line.trim_start_matches([' ', '*']).len();
    let mut text = line[..indent].to_owned();
    let mut width = indent;
    for (index, word) in line[indent..].split(' ').enumerate() {
        let room = width + 1 + word.chars().count() <= terminal;
        if index > 0 && room {
            text.push(' ');
            width += 1;
        } else if index > 0 {
            text += &format!("\n{}", " ".repeat(indent));
            width = indent;
        }
        text += word;
        width += word.chars().count();
    }
    text
}

/// Lays out a table. If it is wider than the terminal, the gaps shrink to one space, and then one column is
/// shortened.
pub fn text(columns: &[Column], lines: &[Line], terminal: Option<usize>) -> String {
    let mut widths: Vec<usize> = columns.iter().map(|column| column.title.chars().count()).collect();
    for line in lines {
        if let Line::Row(cells) = line {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
    }
    let total =
        |widths: &[usize], gap: usize| widths.iter().sum::<usize>() + gap * columns.len().saturating_sub(1);
    let mut gap = GAP;
    if let Some(terminal) = terminal
        && total(&widths, gap) > terminal
    {
        gap = 1;
        let over = total(&widths, gap).saturating_sub(terminal);
        if let Some(at) = columns.iter().position(|column| column.gives_way) {
            widths[at] = widths[at].min(widths[at].saturating_sub(over).max(LEAST));
        }
    }
    let titles: Vec<String> = columns.iter().map(|column| column.title.to_owned()).collect();
    let mut text = row(columns, &widths, gap, &titles);
    for line in lines {
        match line {
            Line::Row(cells) => text += &row(columns, &widths, gap, cells),
            Line::Remark(remark) => text += &format!("  {remark}\n"),
        }
    }
    text
}

fn row(columns: &[Column], widths: &[usize], gap: usize, cells: &[String]) -> String {
    let mut text = String::new();
    for ((column, &width), cell) in columns.iter().zip(widths).zip(cells) {
        if !text.is_empty() {
            text += &" ".repeat(gap);
        }
        let cell = shortened(cell, width);
        text += &if column.words { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
    }
    format!("{}\n", text.trim_end())
}

/// Shortens a text to `width` characters; the last one is `…` if characters are left out.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// Formats a duration with three or four digits: "0 ms", "12 ms", "3.25 s", "812 s".
pub fn duration(duration: Duration) -> String {
    match duration.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        1000..100_000 => format!("{:.2} s", duration.as_secs_f64()),
        ms => format!("{} s", ms / 1000),
    }
}

/// Replaces characters of a text from another program that move the cursor, change the writing direction, or
/// are invisible.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_seen(c) { c } else { '?' }).collect()
}

/// Returns true if a character shows as itself: controls, formats (U+202E among them), separators other than a space,
/// private and unknown ones do not, which is what Rust escapes behind another letter.
fn is_seen(c: char) -> bool {
    let mut letters = [0; 5];
    letters[0] = b'a';
    c.encode_utf8(&mut letters[1..]);
    let text = std::str::from_utf8(&letters[..=c.len_utf8()]).unwrap_or_default();
    // Those that it escapes for other reasons.
    let quoted = matches!(c, '\'' | '"' | '\\');
    !is_blank(c) && (quoted || text.escape_debug().nth(2).is_none())
}

/// Returns true for letters and marks that are invisible, which would let two names look the same.
fn is_blank(c: char) -> bool {
    matches!(c, '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[Column::number("PID"), Column::names("NAME"), Column::number("PENDING")];

    #[test]
    fn line_is_wrapped_at_the_terminal_width() {
        let line = "  * one two three";
        assert_eq!(wrapped(line, Some(11)), "  * one two\n    three");
        assert_eq!(wrapped(line, Some(3)), "  * one\n    two\n    three", "words stay whole");
        assert_eq!((wrapped(line, Some(80)), wrapped(line, None)), (line.to_owned(), line.to_owned()));
        assert_eq!(wrapped("", Some(80)), "");
    }

    fn table(terminal: Option<usize>) -> String {
        let row = |cells: [&str; 3]| Line::Row(cells.map(str::to_owned).to_vec());
        let lines = [
            row(["4242", "inference-server", "0"]),
            row(["7", "batch", "123"]),
            Line::Remark("suspended".to_owned()),
        ];
        text(COLUMNS, &lines, terminal)
    }

    #[test]
    fn columns_fit_their_widest_cell() {
        let want = " PID  NAME              PENDING\n\
                    4242  inference-server        0\n   \
                       7  batch                 123\n  \
                    suspended\n";
        assert_eq!(table(None), want);
        assert_eq!(table(Some(31)), want);
    }

    #[test]
    fn narrow_terminal_shortens_one_column() {
        let want = " PID NAME        PENDING\n\
                    4242 inference-…       0\n   \
                       7 batch           123\n  \
                    suspended\n";
        assert_eq!(table(Some(24)), want);
        let narrowest = table(Some(3));
        assert!(narrowest.contains("4242 inferen…       0\n"), "{narrowest}");
    }

    #[test]
    fn control_and_invisible_characters_are_replaced() {
        assert_eq!(plain("a\x1b[2Jb\nc"), "a?[2Jb?c");
        let turned = ["\u{202e}", "\u{2066}", "\u{200f}", "\u{61c}"];
        let unseen = [
            "\u{200b}",
            "\u{feff}",
            "\u{ad}",
            "\u{2028}",
            "\u{a0}",
            "\u{e0041}",
            "\u{3164}",
            "\u{9b}",
            "\u{fe0f}",
        ];
        for c in turned.iter().chain(&unseen) {
            assert_eq!(plain(&format!("exe{c}txt")), "exe?txt", "{c:?}");
        }
        for seen in
            ["train.py -x 'a' \"b\" c\\d", "Müller", "e\u{301}te\u{301}", "訓練", "обучение", "🚀", "…µ"]
        {
            assert_eq!(plain(seen), seen);
        }
    }
}
