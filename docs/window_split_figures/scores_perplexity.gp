set terminal svg noenhanced font 'DejaVu Sans,13' background '#ffffff' size 900,432 name 'scores_perplexity'
set output 'scores_perplexity.svg'
set datafile separator ','
set datafile missing 'nan'
set title 'perplexity of the evaluation text'
set xlabel 'perplexity'
set lmargin at screen 0.2044
set rmargin at screen 0.97
set tmargin at screen 0.9074
set bmargin at screen 0.2407
set key at screen 0.5,0.0185 center bottom vertical Left reverse maxrows 1 samplen 2 width 1
set yrange [11.5:-0.5]
set grid ytics lt 1 lc rgb '#e4e4e4' lw 1
set border 1
set tics nomirror out
set ytics scale 0
set offsets graph 0.03, graph 0.03, 0, 0
set autoscale xfix
set logscale x
set format x '%g'
$full << end
33.9792737,-0.5
33.9792737,11.5
end
plot 'scores_perplexity.csv' skip 1 using 2:0:ytic(1) with points pt 7 ps 0 notitle, \
     '' skip 1 using 4:0:($2-$4):(0) with vectors nohead lc rgb '#b0b0b0' lw 2 notitle, \
     '' skip 1 using 4:0 with points pt 12 ps 1.4 lw 2 lc rgb '#D55E00' title 'linear part off', \
     '' skip 1 using 2:0:ytic(1) with points pt 7 ps 1.2 lc rgb '#0072B2' title 'run', \
     $full using 1:2 with lines lc rgb '#606060' lw 1.5 dt 1 title 'full model'
