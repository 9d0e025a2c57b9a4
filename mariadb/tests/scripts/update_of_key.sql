# An UPDATE without WHERE that moves its rows to greater keys met them again, and did not end before
# the key was at its limit. A table scan is one of the primary key, and the server was not told.
create table t (a int primary key, b char(4));
insert into t values (1,'a'),(2,'b'),(3,'c'),(4,'d'),(5,'e'),(0,'f'),(100,'a');
update t set a=a+200;
select * from t order by a;
update t set a=0 where a>250;
update t set a=205 where a=200;
update t set a=12345 order by a desc, b limit 1;
select * from t order by a;
update t set a=80 where a in (202,203);
select * from t order by a;
create table u (a int, b int, primary key (a desc), key (b));
insert into u values (1,1),(2,2),(3,3);
update u set a=a-10;
update u set b=b+10;
update u set b=b+10 where b>0;
select * from u order by a;
create table v (a int, b int, c int, primary key (a), unique (b));
insert into v values (1,1,1),(2,2,2),(3,3,3);
update v set b=b+100;
update v, u set v.a=v.a+100 where u.b>0;
select * from v order by a;
