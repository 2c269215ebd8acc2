set terminal svg noenhanced font 'DejaVu Sans,13' background '#ffffff' size 900,572 name 'training_evaluation'
set output 'training_evaluation.svg'
set datafile separator ','
set datafile missing 'nan'
set title 'Perplexity of the evaluation text during training'
set xlabel 'steps taken'
set ylabel 'perplexity'
set bmargin at screen 0.2832
set key at screen 0.5,0.01 center bottom Left reverse maxrows 4 samplen 3
set grid ytics lt 1 lc rgb '#d8d8d8' lw 1
set border 3
set tics nomirror out
set logscale y
set format y '%g'
plot 'training_evaluation.csv' skip 1 using 1:2 with linespoints lc rgb '#000000' dt 1 lw 2 pt 7 ps 0.7 title 'gla, 32 + 32, conv 4', \
     'training_evaluation.csv' skip 1 using 1:3 with linespoints lc rgb '#000000' dt (12,6) lw 2 pt 6 ps 0.7 title 'gla, 32 + 32', \
     'training_evaluation.csv' skip 1 using 1:4 with linespoints lc rgb '#000000' dt (3,5) lw 2 pt 7 ps 0.7 title 'gla, 8 + 56, conv 4', \
     'training_evaluation.csv' skip 1 using 1:5 with linespoints lc rgb '#000000' dt (14,5,3,5) lw 2 pt 6 ps 0.7 title 'gla, 8 + 56', \
     'training_evaluation.csv' skip 1 using 1:6 with linespoints lc rgb '#000000' dt 1 lw 2 pt 7 ps 0.7 title 'gla, 0 + 64, conv 4', \
     'training_evaluation.csv' skip 1 using 1:7 with linespoints lc rgb '#000000' dt (12,6) lw 2 pt 6 ps 0.7 title 'gla, 0 + 64', \
     'training_evaluation.csv' skip 1 using 1:8 with linespoints lc rgb '#0072B2' dt 1 lw 2 pt 5 ps 0.7 title 'kda, 32 + 32, conv 4', \
     'training_evaluation.csv' skip 1 using 1:9 with linespoints lc rgb '#0072B2' dt (12,6) lw 2 pt 4 ps 0.7 title 'kda, 32 + 32', \
     'training_evaluation.csv' skip 1 using 1:10 with linespoints lc rgb '#0072B2' dt (3,5) lw 2 pt 5 ps 0.7 title 'kda, 8 + 56, conv 4', \
     'training_evaluation.csv' skip 1 using 1:11 with linespoints lc rgb '#0072B2' dt (14,5,3,5) lw 2 pt 4 ps 0.7 title 'kda, 8 + 56', \
     'training_evaluation.csv' skip 1 using 1:12 with linespoints lc rgb '#0072B2' dt 1 lw 2 pt 5 ps 0.7 title 'kda, 0 + 64, conv 4', \
     'training_evaluation.csv' skip 1 using 1:13 with linespoints lc rgb '#0072B2' dt (12,6) lw 2 pt 4 ps 0.7 title 'kda, 0 + 64'
