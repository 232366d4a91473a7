//! The plot of a co-run: how latencies are distributed in each mode, and what the batch model keeps.

use super::figures::{Blocks, Figures, Mode, ModeFigures};
use crate::stats::Samples;
use crate::svg::{Axis, line, text};
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 440.0;
/// The plot of latencies: left, top, right, bottom.
const CDF: [f64; 4] = [70.0, 96.0, 620.0, 370.0];
/// The bars of the batch model.
const BARS: [f64; 4] = [720.0, 96.0, 930.0, 370.0];
/// Colours that people with any colour vision tell apart (Okabe and Ito).
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"];
const GREY: &str = "#999999";

/// The whole picture.
pub(super) fn svg(figures: &Figures, blocks: &Blocks) -> String {
    let setting = &figures.setting;
    let (model, rate) = setting.high.rsplit_once('@').unwrap_or((&setting.high, "?"));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let title = format!("{model}, {rate} requests a second, beside {} back to back", setting.low);
    text(&mut out, [CDF[0], 28.0], "start", "font-size=\"17\" font-weight=\"bold\"", &title);
    let window = match (setting.threshold, setting.batch) {
        (Some(threshold), Some(batch)) => {
            format!("; fixed window: {threshold} in flight, batches of {batch}")
        }
        _ => String::new(),
    };
    let note = format!(
        "simulated GPU (compute units: {}, save cost {} µs), recorded kernel times x {}{window}; no GPU measurement",
        setting.cu_model, setting.save_us, setting.scale
    );
    text(&mut out, [CDF[0], 48.0], "start", &format!("fill=\"{GREY}\""), &note);
    latencies(&mut out, figures, blocks);
    throughput(&mut out, figures);
    out.push_str("</svg>\n");
    out
}

/// A distribution of latencies for each mode, over a logarithmic axis.
fn latencies(out: &mut String, figures: &Figures, blocks: &Blocks) {
    let [left, top, right, bottom] = CDF;
    let modes = figures.with_high();
    let pooled = |mode: Mode| {
        let outcomes = blocks.iter().filter(|(of, _)| *of == mode).flat_map(|(_, outcomes)| outcomes);
        let all = outcomes.filter_map(|outcome| outcome.high.as_ref());
        Samples::new(all.flat_map(|record| record.latencies_ms()).collect())
    };
    let samples: Vec<Option<Samples>> = modes.iter().map(|(mode, _)| pooled(*mode)).collect();
    let all = samples.iter().flatten();
    let (low, high) = all.fold((f64::MAX, f64::MIN), |(low, high), s| (low.min(s.min()), high.max(s.max())));
    if low > high {
        return;
    }
    let axis = Axis::around(low.max(1e-3), high.max(1e-3));
    let x = |ms: f64| left + axis.share(ms) * (right - left);
    let y = |percent: f64| bottom - percent / 100.0 * (bottom - top);

    text(
        out,
        [left, top - 16.0],
        "start",
        "font-weight=\"bold\"",
        "Share of requests answered within a time",
    );
    for tick in axis.ticks() {
        line(out, [x(tick), top], [x(tick), bottom], "stroke=\"#e5e5e5\"");
        text(out, [x(tick), bottom + 18.0], "middle", "", &format!("{tick}"));
    }
    for percent in [0.0, 25.0, 50.0, 75.0, 99.0] {
        line(out, [left, y(percent)], [right, y(percent)], "stroke=\"#e5e5e5\"");
        text(out, [left - 8.0, y(percent) + 4.0], "end", "", &format!("{percent} %"));
    }
    text(
        out,
        [(left + right) / 2.0, bottom + 40.0],
        "middle",
        "",
        "latency from arrival to answer, milliseconds",
    );
    let words = |(mode, of): &(Mode, &ModeFigures)| {
        let used = match figures.levels.iter().find(|row| Some(row.level) == mode.level()) {
            Some(row) if row.missing.is_some() => " (not used)",
            _ => "",
        };
        format!("{}{used}: p50 {:.1}, p99 {:.1}", mode.name(), of.p50_ms, of.p99_ms)
    };
    let words: Vec<String> = modes.iter().map(words).collect();
    // About what a letter takes at this size.
    let widest = words.iter().map(String::len).max().unwrap_or(0) as f64 * 6.6 + 34.0;
    for (row, ((samples, colour), words)) in samples.iter().zip(COLOURS).zip(&words).enumerate().rev() {
        let Some(samples) = samples else { continue };
        let mut path = format!("M{:.1} {:.1}", x(samples.min()), y(0.0));
        let n = samples.len() as f64;
        for (index, ms) in samples.sorted().iter().enumerate() {
            let _ = write!(path, "H{:.1}V{:.1}", x(*ms), y((index + 1) as f64 / n * 100.0));
        }
        let _ = writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        let at = [right - widest + 6.0, bottom - 22.0 - (modes.len() - 1 - row) as f64 * 20.0];
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{widest:.1}\" height=\"20\" fill=\"white\" fill-opacity=\"0.85\"/>",
            at[0] - 6.0,
            at[1] - 14.0
        );
        line(
            out,
            [at[0], at[1] - 4.0],
            [at[0] + 22.0, at[1] - 4.0],
            &format!("stroke=\"{colour}\" stroke-width=\"3\""),
        );
        text(out, [at[0] + 28.0, at[1]], "start", "", words);
    }
}

/// What the batch model reaches in each mode, and what the urgent one leaves to it.
fn throughput(out: &mut String, figures: &Figures) {
    let [left, top, right, bottom] = BARS;
    let fair = figures.low_alone_per_s * (1.0 - figures.high_busy_share);
    let mut bars = vec![
        ("alone".to_owned(), figures.low_alone_per_s, GREY),
        ("without".to_owned(), figures.native.low_per_s, COLOURS[1]),
    ];
    for (row, colour) in figures.levels.iter().zip(&COLOURS[2..]) {
        bars.push((format!("level {}", row.level), row.figures.low_per_s, colour));
    }
    let most = bars.iter().map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max) * 1.1;
    let y = |value: f64| bottom - value / most * (bottom - top);
    text(out, [left - 30.0, top - 16.0], "start", "font-weight=\"bold\"", "Batch model, inferences a second");
    line(out, [left - 20.0, bottom], [right, bottom], "stroke=\"#666666\"");
    let step = (right - left + 20.0) / bars.len() as f64;
    let width = (step * 0.8).min(46.0);
    let small = if bars.len() > 3 { "font-size=\"11\"" } else { "" };
    let first = left - 20.0;
    for (index, (name, value, colour)) in bars.into_iter().enumerate() {
        let middle = first + step * (index as f64 + 0.5);
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            middle - width / 2.0,
            y(value),
            bottom - y(value)
        );
        text(out, [middle, y(value) - 6.0], "middle", small, &format!("{value:.2}"));
        text(out, [middle, bottom + 18.0], "middle", small, &name);
    }
    line(out, [left - 20.0, y(fair)], [right, y(fair)], "stroke=\"black\" stroke-dasharray=\"4 3\"");
    let middle = (left + right) / 2.0 - 10.0;
    // Below all bars but the first.
    text(out, [middle + step / 2.0, bottom + 36.0], "middle", "", "giveway");
    text(out, [middle, bottom + 56.0], "middle", "", "dashed: what the urgent model leaves");
}

#[cfg(test)]
mod tests {
    use super::super::figures::Outcome;
    use super::super::figures::tests::{figures, record};
    use super::*;

    #[test]
    fn the_picture_says_that_the_gpu_is_simulated() {
        let one = |ms: f64| vec![Outcome { high: Some(record(&[ms, 2.0 * ms])), ..Outcome::default() }];
        let modes = Mode::of_block(&[1, 3]).into_iter();
        let outcomes = [one(10.0), one(50.0), one(12.0), one(11.0), vec![]];
        let picture = svg(&figures(), &modes.zip(outcomes).collect());
        assert!(
            picture.contains(
                ">simulated GPU (compute units: shared, save cost 50 µs), recorded kernel times x 2;"
            ),
            "{picture}"
        );
        assert!(picture.contains("bert bs8, 10 requests a second, beside resnet50 bs256"), "{picture}");
        assert_eq!(picture.matches("<path").count(), 4);
        // The ground, four lines of the legend, four bars.
        assert_eq!(picture.matches("<rect").count(), 9);
        for words in [">with giveway at level 3: p50 11.0,", ">level 1<", ">level 3<"] {
            assert!(picture.contains(words), "{picture}");
        }
        assert!(!picture.contains("NaN"), "{picture}");
        let opened = picture.matches("<text").count();
        assert_eq!(opened, picture.matches("</text>").count());
    }
}
