//! Aligned columns for people.

use std::os::fd::AsFd;

/// What stands between two columns.
const GAP: usize = 2;
/// A column that gives way keeps so many characters.
const LEAST: usize = 8;

/// How a column is made.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// What stands above it.
    pub title: &'static str,
    /// Words stand at the left end, numbers at the right.
    pub words: bool,
    /// It is shortened where the terminal is too narrow.
    pub gives_way: bool,
}

/// A line of the table.
#[derive(Debug, Clone)]
pub enum Line {
    /// One text for each column.
    Row(Vec<String>),
    /// A remark on the row above.
    Remark(String),
}

/// The width of the terminal; nothing if the output goes elsewhere.
pub fn terminal_width(to: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(to).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// A line as several of the terminal's width, broken at spaces; those behind the first begin below its text, which an
/// asterisk may precede. A word that is longer stays whole.
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

/// The table as text. Where it is wider than the terminal, the gaps become single and then one column gives way; what
/// is still too wide is left to the terminal.
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

/// At most so many characters, the last one `…` if some are left out.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// What somebody else has written, for a terminal: nothing in it moves the cursor, turns the direction of what follows, or is not
/// to be seen.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_seen(c) { c } else { '?' }).collect()
}

/// Whether a character shows as itself: controls, formats (U+202E among them), separators other than a space, private and
/// unknown ones do not, which is what Rust escapes behind another letter.
fn is_seen(c: char) -> bool {
    let mut letters = [0; 5];
    letters[0] = b'a';
    c.encode_utf8(&mut letters[1..]);
    let text = std::str::from_utf8(&letters[..=c.len_utf8()]).unwrap_or_default();
    // Those that it escapes for other reasons.
    let quoted = matches!(c, '\'' | '"' | '\\');
    !is_blank(c) && (quoted || text.escape_debug().nth(2).is_none())
}

/// Letters and marks that show nothing: they would let two names look the same.
fn is_blank(c: char) -> bool {
    matches!(c, '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column { title: "PID", words: false, gives_way: false },
        Column { title: "NAME", words: true, gives_way: true },
        Column { title: "PENDING", words: false, gives_way: false },
    ];

    #[test]
    fn a_line_is_broken_where_the_terminal_ends() {
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
    fn columns_are_as_wide_as_their_widest_text() {
        let want = " PID  NAME              PENDING\n\
                    4242  inference-server        0\n   \
                       7  batch                 123\n  \
                    suspended\n";
        assert_eq!(table(None), want);
        assert_eq!(table(Some(31)), want);
    }

    #[test]
    fn a_narrow_terminal_shortens_the_names() {
        let want = " PID NAME        PENDING\n\
                    4242 inference-…       0\n   \
                       7 batch           123\n  \
                    suspended\n";
        assert_eq!(table(Some(24)), want);
        let narrowest = table(Some(3));
        assert!(narrowest.contains("4242 inferen…       0\n"), "{narrowest}");
    }

    #[test]
    fn nothing_moves_the_cursor() {
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
