//! Curves along an axis: whether points rise, fall, stay, or lie on a straight line.

use crate::experiment::CurveShape;

/// Whether a curve has a shape, and the number that shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveFinding {
    /// Whether it has the shape.
    pub has_shape: bool,
    /// The number that shows it: the worst step, a share, a slope.
    pub number: f64,
}

/// Whether points have a shape; `None` if they are too few. `other` is the second curve of those that cross.
pub fn find(
    shape: &CurveShape,
    points: &[(f64, f64)],
    other: &[(f64, f64)],
    slack: f64,
) -> Option<CurveFinding> {
    let least = if matches!(shape, CurveShape::Peaks(_) | CurveShape::Straight(_)) { 3 } else { 2 };
    if points.len() < least {
        return None;
    }
    let steps = || points.windows(2).map(|two| two[1].1 / two[0].1.max(1e-12));
    let (first, last) = (points.first()?.1, points.last()?.1);
    let finding = |has_shape, number| Some(CurveFinding { has_shape, number });
    match shape {
        // a curve that stays where it is does neither rise nor fall
        CurveShape::Rises => {
            let worst = steps().fold(f64::INFINITY, f64::min);
            finding(worst >= 1.0 - slack && last > first * (1.0 + slack), worst)
        }
        CurveShape::Falls => {
            let worst = steps().fold(f64::NEG_INFINITY, f64::max);
            finding(worst <= 1.0 + slack && last < first * (1.0 - slack), worst)
        }
        CurveShape::Flat => {
            let values = || points.iter().map(|point| point.1);
            let (low, high) = (
                values().fold(f64::INFINITY, f64::min),
                values().fold(f64::NEG_INFINITY, f64::max),
            );
            let share = (high - low) / high.abs().max(1e-12);
            finding(share <= slack, share)
        }
        CurveShape::Peaks(by) => {
            let place = (0..points.len()).max_by(|a, b| points[*a].1.total_cmp(&points[*b].1))?;
            let after = points[place..].iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
            let fell = 1.0 - after / points[place].1.max(1e-12);
            finding(place > 0 && fell >= *by, fell)
        }
        CurveShape::Crosses(_) => {
            let at = |x: f64| other.iter().find(|point| point.0 == x).map(|point| point.1);
            let mut ratios = points.iter().filter_map(|(x, y)| Some(y / at(*x)?.max(1e-12)));
            let first = ratios.next()?;
            let last = ratios.next_back()?;
            finding(first > 1.0 && last < 1.0, last)
        }
        CurveShape::Slope(least, most) => {
            let (slope, _) = line(points)?;
            finding((*least..=*most).contains(&slope), slope)
        }
        CurveShape::Straight(least) => {
            let (_, r2) = line(points)?;
            finding(r2 >= *least, r2)
        }
    }
}

/// Slope and r² of the straight line through points with the least squares.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let count = points.len() as f64;
    let (mean_x, mean_y) = (
        points.iter().map(|point| point.0).sum::<f64>() / count,
        points.iter().map(|point| point.1).sum::<f64>() / count,
    );
    let sum = |of: fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum()
    };
    let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
    if xx <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    Some((slope, if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::RowSelector;

    fn has(shape: CurveShape, values: &[f64], slack: f64) -> bool {
        let points: Vec<_> = values.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
        let other: Vec<_> = (0..values.len()).map(|x| (x as f64, 10.0)).collect();
        find(&shape, &points, &other, slack).is_some_and(|finding| finding.has_shape)
    }

    #[test]
    fn shapes_are_told_apart() {
        assert!(has(CurveShape::Rises, &[1.0, 2.0, 1.99, 3.0], 0.02));
        assert!(!has(CurveShape::Rises, &[1.0, 2.0, 1.9, 3.0], 0.02));
        assert!(!has(CurveShape::Rises, &[2.0, 2.0, 2.0], 0.02), "it stays where it is");
        assert!(has(CurveShape::Falls, &[3.0, 2.0, 0.0], 0.0));
        assert!(has(CurveShape::Flat, &[375.0, 377.0, 370.0], 0.05));
        assert!(!has(CurveShape::Flat, &[375.0, 337.0], 0.05));
        assert!(has(CurveShape::Peaks(0.2), &[40.0, 63.0, 40.0], 0.0));
        assert!(!has(CurveShape::Peaks(0.2), &[40.0, 60.0, 59.0], 0.0));
        assert!(!has(CurveShape::Peaks(0.2), &[63.0, 40.0, 30.0], 0.0), "it never rose");
        assert!(has(CurveShape::Crosses(RowSelector::default()), &[12.0, 10.0, 9.0], 0.0));
        assert!(!has(CurveShape::Crosses(RowSelector::default()), &[12.0, 11.0], 0.0));
        assert!(has(CurveShape::Slope(-0.03, 0.005), &[375.0, 374.99, 374.97], 0.0));
        assert!(has(CurveShape::Straight(0.99), &[1.0, 2.0, 3.0], 0.0));
        assert!(!has(CurveShape::Straight(0.99), &[1.0, 3.0, 2.0], 0.0));
    }

    #[test]
    fn too_few_points_are_no_curve() {
        assert_eq!(find(&CurveShape::Flat, &[(1.0, 1.0)], &[], 0.1), None);
        assert_eq!(find(&CurveShape::Straight(0.9), &[(1.0, 1.0), (2.0, 2.0)], &[], 0.1), None);
        assert_eq!(find(&CurveShape::Slope(0.0, 1.0), &[(1.0, 1.0), (1.0, 2.0)], &[], 0.1), None);
    }
}
