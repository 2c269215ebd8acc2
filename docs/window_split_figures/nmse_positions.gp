set terminal svg noenhanced font 'DejaVu Sans,13' background '#ffffff' size 900,590 name 'nmse_positions'
set output 'nmse_positions.svg'
set datafile separator ','
set datafile missing 'nan'
set title 'Error by position, mean over layers'
set xlabel 'position'
set ylabel 'nMSE (teacher forced)'
set bmargin at screen 0.3051
set key at screen 0.5,0.01 center bottom Left reverse maxrows 5 samplen 3
set grid ytics lt 1 lc rgb '#d8d8d8' lw 1
set border 3
set tics nomirror out
set logscale y
set format y '%g'
set xrange [3.5:507.5]
plot 'nmse_positions.csv' skip 1 using 1:2 with lines lc rgb '#000000' dt 1 lw 2 title 'gla, 32 + 32, conv 4', \
     'nmse_positions.csv' skip 1 using 1:3 with lines lc rgb '#000000' dt (12,6) lw 2 title 'gla, 32 + 32', \
     'nmse_positions.csv' skip 1 using 1:4 with lines lc rgb '#000000' dt (3,5) lw 2 title 'gla, 8 + 56, conv 4', \
     'nmse_positions.csv' skip 1 using 1:5 with lines lc rgb '#000000' dt (14,5,3,5) lw 2 title 'gla, 8 + 56', \
     'nmse_positions.csv' skip 1 using 1:6 with lines lc rgb '#000000' dt 1 lw 2 title 'gla, 0 + 64, conv 4', \
     'nmse_positions.csv' skip 1 using 1:7 with lines lc rgb '#000000' dt (12,6) lw 2 title 'gla, 0 + 64', \
     'nmse_positions.csv' skip 1 using 1:8 with lines lc rgb '#0072B2' dt 1 lw 2 title 'kda, 32 + 32, conv 4', \
     'nmse_positions.csv' skip 1 using 1:9 with lines lc rgb '#0072B2' dt (12,6) lw 2 title 'kda, 32 + 32', \
     'nmse_positions.csv' skip 1 using 1:10 with lines lc rgb '#0072B2' dt (3,5) lw 2 title 'kda, 8 + 56, conv 4', \
     'nmse_positions.csv' skip 1 using 1:11 with lines lc rgb '#0072B2' dt (14,5,3,5) lw 2 title 'kda, 8 + 56', \
     'nmse_positions.csv' skip 1 using 1:12 with lines lc rgb '#0072B2' dt 1 lw 2 title 'kda, 0 + 64, conv 4', \
     'nmse_positions.csv' skip 1 using 1:13 with lines lc rgb '#0072B2' dt (12,6) lw 2 title 'kda, 0 + 64', \
     'nmse_positions.csv' skip 1 using 1:14 with lines lc rgb '#808080' dt (12,6) lw 2 title 'linear part off, 32 + 32', \
     'nmse_positions.csv' skip 1 using 1:15 with lines lc rgb '#808080' dt (3,5) lw 2 title 'linear part off, 8 + 56', \
     'nmse_positions.csv' skip 1 using 1:16 with lines lc rgb '#808080' dt (14,5,3,5) lw 2 title 'linear part off, 0 + 64'
