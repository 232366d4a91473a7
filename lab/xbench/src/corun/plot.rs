//! The plot of a co-run: the distribution of latencies in each mode, and the throughput of the batch model.

use super::figures::{Blocks, Figures, HIGH, ModeFigures, records};
use super::levels::Level;
use crate::stats::Samples;
use crate::svg::{Axis, BOLD, COLOURS, GREY, Panel, Picture, Place};
use std::fmt::Write as _;

const SIZE: [f64; 2] = [960.0, 440.0];
/// The panel of latencies.
const CDF: Place = [70.0, 96.0, 620.0, 370.0];
/// The bars of the batch model.
const BARS: Place = [720.0, 96.0, 930.0, 370.0];

pub(super) fn svg(figures: &Figures, blocks: &Blocks) -> String {
    let setting = &figures.setting;
    let (model, rate) = setting.high.rsplit_once('@').unwrap_or((&setting.high, "?"));
    let title = format!("{model}, {rate} requests a second, beside {} back to back", setting.low);
    let window = match (setting.threshold, setting.batch) {
        (Some(threshold), Some(batch)) => {
            format!("; fixed window: {threshold} in flight, batches of {batch}")
        }
        _ => String::new(),
    };
    let note = format!(
        "{}, recorded kernel times x {}{window}{}",
        figures.gpu,
        setting.scale,
        if figures.gpu.is_simulated() { "; no GPU measurement" } else { "" }
    );
    let mut picture = Picture::new(SIZE, CDF[0], &title, &[], &note);
    latencies(&mut picture, figures, blocks);
    throughput(&mut picture, figures);
    picture.finish()
}

/// Draws the distribution of latencies of each mode over a logarithmic axis.
fn latencies(picture: &mut Picture, figures: &Figures, blocks: &Blocks) {
    let [_, _, right, bottom] = CDF;
    // All modes but the batch model alone have the urgent model, in the order of the figures.
    let pooled = |outcomes: &[_]| {
        Samples::new(records(outcomes, HIGH).flat_map(|record| record.latencies_ms()).collect())
    };
    let samples: Vec<Samples> = blocks.iter().filter_map(|(_, outcomes)| pooled(outcomes)).collect();
    let (low, high) =
        samples.iter().fold((f64::MAX, f64::MIN), |(low, high), s| (low.min(s.min()), high.max(s.max())));
    if low > high {
        return;
    }
    let across = Axis::logarithmic(low.max(1e-3), high.max(1e-3));
    let up = Axis::linear(vec![0.0, 25.0, 50.0, 75.0, 99.0], 100.0, " %");
    let panel = Panel { place: CDF, across: &across, up: &up };
    let label = "latency from arrival to answer, milliseconds";
    panel.frame(picture, "Share of requests answered within a time", label);
    let legend = |(name, of, row): &(String, &ModeFigures, Option<&Level>)| {
        let unused = row.is_some_and(|row| row.missing.is_some());
        let unused = if unused { " (not used)" } else { "" };
        format!("{name}{unused}: p50 {:.1}, p99 {:.1}", of.p50_ms, of.p99_ms)
    };
    let legend: Vec<String> = figures.with_high().iter().map(legend).collect();
    // The approximate width of a letter at this size.
    let widest = legend.iter().map(String::len).max().unwrap_or(0) as f64 * 6.6 + 34.0;
    for (row, ((samples, colour), text)) in samples.iter().zip(COLOURS).zip(&legend).enumerate().rev() {
        let mut path = format!("M{:.1} {:.1}", panel.x(samples.min()), panel.y(0.0));
        let n = samples.len() as f64;
        for (index, ms) in samples.sorted().iter().enumerate() {
            let _ = write!(path, "H{:.1}V{:.1}", panel.x(*ms), panel.y((index + 1) as f64 / n * 100.0));
        }
        picture.push(&format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
        let [x, y] = [right - widest + 6.0, bottom - 22.0 - (legend.len() - 1 - row) as f64 * 20.0];
        picture.rectangle([x - 6.0, y - 14.0], [widest, 20.0], "fill=\"white\" fill-opacity=\"0.85\"");
        let style = format!("stroke=\"{colour}\" stroke-width=\"3\"");
        picture.line([x, y - 4.0], [x + 22.0, y - 4.0], &style);
        picture.text([x + 28.0, y], "start", "", text);
    }
}

/// Draws the throughput of the batch model in each mode, and what the urgent model leaves.
fn throughput(picture: &mut Picture, figures: &Figures) {
    let [left, top, right, bottom] = BARS;
    let fair = figures.free_per_s();
    let mut bars = vec![
        ("alone".to_owned(), figures.low_alone_per_s, GREY),
        ("without".to_owned(), figures.native.low_per_s, COLOURS[1]),
    ];
    for (row, colour) in figures.levels.iter().zip(&COLOURS[2..]) {
        bars.push((format!("level {}", row.level), row.figures.low_per_s, colour));
    }
    let most = bars.iter().map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max) * 1.1;
    let y = |value: f64| bottom - value / most * (bottom - top);
    picture.text([left - 30.0, top - 16.0], "start", BOLD, "Batch model, inferences a second");
    picture.line([left - 20.0, bottom], [right, bottom], "stroke=\"#666666\"");
    let first = left - 20.0;
    let step = (right - first) / bars.len() as f64;
    let width = (step * 0.8).min(46.0);
    let small = if bars.len() > 3 { "font-size=\"11\"" } else { "" };
    for (index, (name, value, colour)) in bars.into_iter().enumerate() {
        let middle = first + step * (index as f64 + 0.5);
        let size = [width, bottom - y(value)];
        picture.rectangle([middle - width / 2.0, y(value)], size, &format!("fill=\"{colour}\""));
        picture.text([middle, y(value) - 6.0], "middle", small, &format!("{value:.2}"));
        picture.text([middle, bottom + 18.0], "middle", small, &name);
    }
    picture.line([first, y(fair)], [right, y(fair)], "stroke=\"black\" stroke-dasharray=\"4 3\"");
    let middle = (left + right) / 2.0 - 10.0;
    // Below all bars but the first.
    picture.text([middle + step / 2.0, bottom + 36.0], "middle", "", "giveway");
    picture.text([middle, bottom + 56.0], "middle", "", "dashed: what the urgent model leaves");
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::{blocks, figures};
    use super::*;

    #[test]
    fn picture_has_a_curve_and_a_bar_for_each_mode() {
        let picture = svg(&figures(), &blocks());
        crate::svg::tests::check(&picture);
        assert!(
            picture.contains(
                ">simulated GPU, compute units shared, save cost 50 µs, recorded kernel times x 2;"
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
    }
}
